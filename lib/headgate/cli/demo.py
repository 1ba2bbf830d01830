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
    roster: Annotated[Path | None, Parameter(help="Sample these models in place of the baselines.")] = None,
    duration: Annotated[float, Parameter(help="Sample each environment for this many seconds.")] = 30.0,
    keep_serving: Annotated[
        bool, Parameter(negative="", help="Leave the Prefect server and its UI up until Ctrl-C.")
    ] = False,
    local_model: Annotated[
        bool, Parameter(help="Sample the small local model beside the baselines, where it is installed.")
    ] = True,
) -> int:
    """Sample models in four environments through Prefect deployments, and report.

    Starts a Prefect server of its own on a free port, registers blocks, deploys, starts a worker, serves baseline
    agents and, where it is installed, a small real language model, samples them, and prints where report and data
    are. With OPENAI_BASE_URL set, or with --roster, it samples those models instead.
    """
    return asyncio.run(
        orchestration.run_demo(
            orchestration.DemoChoices(
                folder=folder, roster=roster, window_s=duration, keep_serving=keep_serving, local_model=local_model
            )
        )
    )
