"""How comparisons are stored: as samples in a store of their own, beside the samples whose answers they compare."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import polars as pl

from headgate.core import checked_name
from headgate.reports import ArenaComparison

ARENA_FOLDER: Final = "arena"
"""Folder of the comparisons below the samples', so that no summary, leaderboard or rate ever counts them as samples."""

COLUMNS: Final = (
    "task_id",
    "campaign",
    "model",
    "environment",
    "index",
    "sequence",
    "stage",
    "score",
    "why",
    "error",
    "finished_at",
)

_AGAINST: Final = "/vs/"
_AGAIN: Final = "/again-"
_ASKED_AGAIN: Final = re.compile(rf"{_AGAIN}\d+$")
_BY: Final = "by/"
_JUDGED: Final = re.compile(r"judged (none|(?:0|0\.5|1)(?:, (?:0|0\.5|1))*):")


def comparison_environment(environment: str, against: str) -> str:
    """Return the environment name that a comparison is stored under: that of both answers, and the second model.

    Raises:
        InvalidNameError: if the two together are too long.
    """
    return checked_name(f"{environment}{_AGAINST}{against}", "comparison")


def stage_of(judge: str, rubric: str) -> str:
    """Return the stage of comparisons by a judge and a rubric; a change of either asks for them anew."""
    return checked_name(f"{_BY}{judge}/{rubric}" if rubric else f"{_BY}{judge}", "judge")


def stages_of(rows: pl.DataFrame, campaign: str) -> list[str]:
    """Return the stages of a campaign's comparisons, sorted; retries of failed ones count as the same stage."""
    stages = rows.filter(pl.col("campaign") == campaign)["stage"].unique()
    return sorted({_ASKED_AGAIN.sub("", stage) for stage in stages})


def judge_of_stage(stage: str) -> str:
    """Return the judge of a stage, followed by a slash and the rubric if there is one."""
    return stage.removeprefix(_BY)


def again(stage: str, runs: int) -> str:
    """Return the stage of a comparison that failed `runs` times."""
    return f"{stage}{_AGAIN}{runs + 1}" if runs else stage


def judged_note(values: Iterable[float], why: str) -> str:
    """Return a comparison's `why`: each judgement as the first model's share, in order, and a reason."""
    return f"judged {', '.join(f'{value:g}' for value in values) or 'none'}: {why}"


def of_stage(rows: pl.DataFrame, campaign: str, stage: str) -> pl.DataFrame:
    """Return the rows of one campaign, judge and rubric."""
    is_same = (pl.col("stage") == stage) | pl.col("stage").str.starts_with(f"{stage}{_AGAIN}")
    return rows.filter(pl.col("campaign") == campaign, is_same)


def comparisons_of(rows: pl.DataFrame) -> list[ArenaComparison]:
    """Return the comparisons in stored rows, without those that have no verdict."""
    found = []
    ordered = rows.filter(pl.col("score").is_not_null()).sort("environment", "model", "index", "task_id")
    for environment, model, index, score, why in ordered.select(
        "environment", "model", "index", "score", "why"
    ).iter_rows():
        base, is_pair, against = environment.rpartition(_AGAINST)
        judged = _JUDGED.match(why)
        if is_pair and judged is not None:
            values = () if judged[1] == "none" else tuple(float(value) for value in judged[1].split(", "))
            found.append(ArenaComparison(base, index, model, against, score, values))
    return found
