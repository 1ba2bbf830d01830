"""`headgate rank`: which models come first, from as few samples as that takes."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from headgate.cli.options import Choices, EnableMonitoring, MonitorPort, Verbose
from headgate.cli.output import AsJson
from headgate.cli.run import Limits, Repeats, run
from headgate.core.errors import InvalidInputError


def rank(
    choices: Choices | None = None,
    *,
    instances: Annotated[int, Parameter(help="Rank the models on this many tasks of each environment.")],
    indifference: Annotated[
        float, Parameter(help="Either of two models may come first when their means differ by this at most.")
    ] = 0.02,
    repeats: Repeats = None,
    enable_monitoring: EnableMonitoring = None,
    monitor_port: MonitorPort = None,
    limits: Limits = "",
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> int:
    """Rank the roster's models on the same tasks, and stop sampling each one once it is ranked.

    It is `headgate run --instances`, tasks in random order, until it is known of every two models which comes first on
    all of the tasks, wherever their means differ by more than `--indifference`. All of it holds with a probability of
    95 %. What is stored is not sampled again; models that are complete help to rank new ones.

    Exit status as of `headgate run --instances`.
    """
    if not 0 < indifference < 1:
        raise InvalidInputError(
            f"--indifference must be above 0 and below 1 (got {indifference:g})",
            next_step="It is a difference of mean scores, such as 0.02; `headgate run --instances` takes all tasks.",
        )
    return run(
        choices,
        instances=instances,
        indifference=indifference,
        repeats=repeats,
        enable_monitoring=enable_monitoring,
        monitor_port=monitor_port,
        limits=limits,
        verbose=verbose,
        as_json=as_json,
    )
