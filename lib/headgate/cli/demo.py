"""`headgate demo`: the main job from end to end, on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate import orchestration


def demo(
    *,
    folder: Annotated[Path, Parameter(help="Where the demo keeps its server, data and reports.")] = Path(
        ".headgate/demo"
    ),
    roster: Annotated[Path | None, Parameter(help="Sample these models instead of the baselines.")] = None,
    duration: Annotated[float, Parameter(help="Sample each environment for this many seconds.")] = 30.0,
    keep_serving: Annotated[bool, Parameter(help="Keep the Prefect server and its UI running until Ctrl-C.")] = False,
    local_model: Annotated[
        bool,
        Parameter(
            negative="--no-local-model",
            help="Sample the small local model beside the baselines, where it is installed.",
        ),
    ] = True,
    cluster: Annotated[
        bool,
        Parameter(
            help="Instead, show checkpoints, a training and outside workers on a local Ray cluster of two nodes."
        ),
    ] = False,
) -> int:
    """Sample models in four environments through Prefect deployments, and report.

    Starts a Prefect server of its own on a free port, registers blocks, deploys, starts a worker, serves baseline
    agents and, where it is installed, a small real language model, samples them, and prints where the report and data
    are. With OPENAI_BASE_URL set, or with --roster, it samples those models instead.

    With --cluster it needs the small model, and no Prefect: two checkpoints appear one after the other, and engines
    on a local Ray cluster of its own evaluate them, in an environment whose episodes run on the cluster's nodes. A
    training takes their GPU midway; an outside worker runs another environment. At the end it prints the curve, which
    work held the GPU when, and an account of all samples. Exit status 0 when every sample that was due is stored
    exactly once. Its files are in the subfolder `cluster`.
    """
    if cluster:
        return asyncio.run(orchestration.run_cluster_demo(folder / "cluster"))
    return asyncio.run(
        orchestration.run_demo(
            orchestration.DemoChoices(
                folder=folder, roster=roster, window_s=duration, keep_serving=keep_serving, local_model=local_model
            )
        )
    )
