"""`headgate judge`: samples whose answers another model judges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from headgate import run as runs
from headgate.cli.live import progress_bar
from headgate.cli.options import JudgeChoices, RunOptions, Whole
from headgate.cli.output import CHECK_FAILED, INTERRUPTED, counted, print_json, print_table, say
from headgate.cli.run import Repeats, at_hand, campaign_samples, is_incomplete, left_by, logs_are_hidden, missing_from
from headgate.config import Settings
from headgate.core.status import CampaignStatus
from headgate.net import event_loop

if TYPE_CHECKING:
    import polars as pl

R = TypeVar("R")

JUDGED_COLUMNS = ("model", "environment", "samples", "scored", "successes", "mean_score", "judgements", "agreement",
                  "judge_errors", "errors")  # fmt: skip
"""Columns of the table, and keys of each pair in `--json`."""

AGREEMENT_COLUMNS = ("answers", "judgements", "alpha", "low", "high", "spread")
"""Columns of the table of agreement, and keys of each environment in `--json`."""


def judge(
    choices: JudgeChoices | None = None,
    *,
    instances: Annotated[Whole, Parameter(help="Tasks per model and environment, each once.")] = 10,
    repeats: Repeats = None,
    how: RunOptions | None = None,
) -> int:
    """Sample the roster's models in environments whose answers a judge reads, each task once.

    Tasks whose samples are stored are not run again. On Ctrl-C it starts no new sample, has the answers so far judged,
    and ends; the next run continues from there. The setting `judge_key` holds the judge's key.

    Exit status 4 when samples kept failing and it stopped early (`early_stop`), when no sample has a score, or when
    samples that the store did not accept wait in the journal; 130 when it was told to stop before all were taken.
    """
    how = how or RunOptions()
    given = {"enable_monitoring": how.enable_monitoring, "monitor_port": how.monitor_port, "repeats": repeats}
    settings = (choices or JudgeChoices()).load(**given).settings
    is_live = logs_are_hidden(how.verbose, as_json=how.as_json)
    judged = partial(runs.run_judged, settings, instances=instances)
    result = event_loop.run(judged_live(judged, settings, how.limits, is_live))
    matrix = event_loop.run(_judged_matrix(settings, result))
    if how.as_json:
        print_json(judged_document(result))
    else:
        print_table(
            f"judged by {settings.judge_model}",
            [column.replace("_", " ") for column in JUDGED_COLUMNS],
            [tuple(getattr(pair, column) for column in JUDGED_COLUMNS) for pair in result.status.judged],
            right=range(2, len(JUDGED_COLUMNS)),
        )
        _show_agreement(result)
        say(f"{counted(result.samples, 'sample')}, {result.scored} scored, {left_by(result, settings)}")
        for line in missing_from(matrix, result, settings):
            say(line)
    if result.was_interrupted:
        return INTERRUPTED
    return CHECK_FAILED if result.stopped_early or is_incomplete(matrix, result) else 0


async def _judged_matrix(settings: Settings, result: runs.RunResult) -> pl.DataFrame:
    """Return the last sample of each task of the run's models and environments, including those of earlier runs.

    A task that got no verdict is taken again as another sample, which is the one that counts.
    """
    import polars as pl  # noqa: PLC0415 - `--help` does not load it

    samples = await campaign_samples(settings)
    pairs = pl.DataFrame(
        [(pair.model, pair.environment) for pair in result.status.judged],
        schema={"model": pl.String, "environment": pl.String},
        orient="row",
    )
    ours = samples.join(pairs, on=["model", "environment"], how="semi")
    by_worth = ours.sort(pl.col("score").is_not_null(), "finished_at")
    return by_worth.unique(["model", "environment", "sequence"], keep="last", maintain_order=True)


def _show_agreement(result: runs.RunResult) -> None:
    """Print how far repeated judgements agree, where there are any."""
    if result.agreements:
        columns = ["environment", *AGREEMENT_COLUMNS]
        rows = [(name, *(getattr(one, column) for column in AGREEMENT_COLUMNS)) for name, one in result.agreements]
        print_table("agreement of judgements (Krippendorff's alpha)", columns, rows, right=range(1, len(columns)))


async def judged_live(run: Callable[..., Awaitable[R]], settings: Settings, limits: str, is_live: bool) -> R:
    """Return the result of `run`, called with what `at_hand` yields; with `is_live`, a bar shows its progress."""
    async with at_hand(settings, limits) as given:
        with progress_bar("starting", is_shown=is_live) as bar:

            async def show(status: CampaignStatus) -> None:
                said = f"{status.state}: {status.workers.active} rollouts, {status.unjudged} with the judge"
                if bar is not None:
                    bar(status.samples, status.samples + status.open_tasks, said)

            return await run(on_status=show, **given)


def judged_document(result: runs.RunResult) -> dict[str, Any]:
    """Return a result as `--json` prints it."""
    return {
        **result.ending(),
        "pairs": [{column: getattr(pair, column) for column in JUDGED_COLUMNS} for pair in result.status.judged],
        "agreements": {
            name: {column: getattr(one, column) for column in AGREEMENT_COLUMNS} for name, one in result.agreements
        },
    }
