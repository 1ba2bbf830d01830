"""The running counts behind summary and history: rows are folded in, each task once, in any order and any number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from headgate.storage.schema import FRAME_SCHEMA

MINUTES_KEPT: Final = 25 * 60
"""Minute counts older than this before the newest fold are dropped: a day, and an hour for clocks that differ."""

ROW_COLUMNS: Final = (
    "task_id", "campaign", "model", "environment", "stage", "sequence", "score", "success", "error_kind", "finished_at",
    "latency_s", "prompt_tokens", "completion_tokens",
)  # fmt: skip
"""What a fold reads of a row."""

_PAIR: Final = ["model", "environment"]
_TASK: Final = ["campaign", "model", "environment", "stage"]

_SUMS: Final = (
    "rows", "scored", "score_sum", "score_square_sum", "zero_or_one", "successes", "latency_sum", "prompt_tokens",
    "completion_tokens",
)  # fmt: skip

_PAIRS_SCHEMA: Final = pl.Schema(
    dict.fromkeys(_PAIR, pl.String)
    | {name: pl.Float64 if name.endswith("_sum") else pl.Int64 for name in _SUMS}
    | {"last_finished_at": pl.Float64, "max_sequence": pl.Int64}
)
_ERRORS_SCHEMA: Final = pl.Schema(dict.fromkeys(_PAIR, pl.String) | {"kind": pl.String, "rows": pl.Int64})
_MINUTES_SCHEMA: Final = pl.Schema(dict.fromkeys(_PAIR, pl.String) | {"minute": pl.Int64, "scored": pl.Int64})
_SEEN_SCHEMA: Final = pl.Schema(dict.fromkeys(_TASK, pl.String) | {"first": pl.Int64, "last": pl.Int64})

SCHEMAS: Final[Mapping[str, pl.Schema]] = MappingProxyType(
    {"pairs": _PAIRS_SCHEMA, "errors": _ERRORS_SCHEMA, "minutes": _MINUTES_SCHEMA, "seen": _SEEN_SCHEMA}
)


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of all rows folded in so far.

    Attributes:
        pairs: per model and environment: sums, the latest end, the highest sequence.
        errors: per pair and error kind: rows.
        minutes: per pair and minute since the epoch: scored rows, for the last 25 hours.
        seen: per campaign, pair and stage: the sequences folded in, as ranges. A task id is the hash of exactly these,
            so the ranges know every task that has been counted in the space of its gaps.
    """

    pairs: pl.DataFrame
    errors: pl.DataFrame
    minutes: pl.DataFrame
    seen: pl.DataFrame

    @staticmethod
    def empty() -> Tally:
        """Return the tally of no rows."""
        return Tally(**{name: pl.DataFrame(schema=schema) for name, schema in SCHEMAS.items()})

    def folded(self, rows: pl.DataFrame, now: float) -> Tally:
        """Return the tally with the rows that were not in it before; one without `success` is seen, and no sample."""
        rows = _unseen(self.seen, rows.select(ROW_COLUMNS))
        is_scored = pl.col("score").is_not_null()
        minutes = rows.filter(is_scored).group_by(*_PAIR, minute=_MINUTE).agg(scored=pl.len().cast(pl.Int64))
        kinds = rows.filter(pl.col("error_kind").is_not_null())
        errors = kinds.group_by(*_PAIR, kind="error_kind").agg(rows=pl.len().cast(pl.Int64))
        oldest = int(now // 60) - MINUTES_KEPT
        return Tally(
            pairs=_summed(self.pairs, _pairs_of(rows), _PAIR, pl.col(_SUMS).sum(), pl.col(_LATEST).max()),
            errors=_summed(self.errors, errors, [*_PAIR, "kind"], pl.col("rows").sum()),
            minutes=_summed(self.minutes, minutes, [*_PAIR, "minute"], pl.col("scored").sum()).filter(
                pl.col("minute") > oldest
            ),
            seen=_ranges(self.seen, rows.select(*_TASK, first="sequence", last="sequence")),
        )

    def fields(self) -> dict[str, dict[str, list[Any]]]:
        """Return the tally as columns of plain values, for JSON; long tables have one row per pair, with lists."""
        return {name: _nested(name, getattr(self, name)).to_dict(as_series=False) for name in SCHEMAS}

    @staticmethod
    def of_fields(fields: Mapping[str, Mapping[str, list[Any]]]) -> Tally:
        """Return the tally that `fields` came from; raises what polars raises for other fields."""
        return Tally(**{name: _flat(name, fields[name]) for name in SCHEMAS})


_NESTED: Final = MappingProxyType({"minutes": ("minute", "scored"), "seen": ("first", "last")})


def _nested(name: str, table: pl.DataFrame) -> pl.DataFrame:
    lists = _NESTED.get(name, ())
    return table.group_by(pl.exclude(lists), maintain_order=True).agg(lists) if lists else table


def _flat(name: str, columns: Mapping[str, list[Any]]) -> pl.DataFrame:
    lists = _NESTED.get(name, ())
    types = {column: pl.List(kind) if column in lists else kind for column, kind in SCHEMAS[name].items()}
    table = pl.DataFrame(dict(columns), schema=types)
    return table.explode(lists) if lists else table


_LATEST: Final = ("last_finished_at", "max_sequence")
_MINUTE: Final = (pl.col("finished_at") / 60).floor().cast(pl.Int64)


def _pairs_of(rows: pl.DataFrame) -> pl.DataFrame:
    score, is_scored = pl.col("score"), pl.col("score").is_not_null()
    return (
        rows.group_by(_PAIR)
        .agg(
            rows=pl.col("success").count(),
            scored=is_scored.sum(),
            score_sum=score.sum(),
            score_square_sum=(score * score).sum(),
            zero_or_one=score.is_in([0.0, 1.0]).sum(),
            successes=pl.col("success").sum(),
            latency_sum=pl.col("latency_s").filter(is_scored).sum(),
            prompt_tokens=pl.col("prompt_tokens").sum(),
            completion_tokens=pl.col("completion_tokens").sum(),
            last_finished_at=pl.col("finished_at").max(),
            max_sequence=pl.col("sequence").max(),
        )
        .cast(_PAIRS_SCHEMA)
    )


def _summed(old: pl.DataFrame, new: pl.DataFrame, keys: list[str], *sums: pl.Expr) -> pl.DataFrame:
    return pl.concat([old, new.select(old.columns)]).group_by(keys).agg(*sums).select(old.columns).sort(keys)


def _unseen(seen: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows whose tasks are in no range of `seen`, each task once."""
    rows = rows.unique("task_id", keep="first", maintain_order=True)
    rows = rows.unique([*_TASK, "sequence"], keep="first", maintain_order=True).sort("sequence")
    nearest = rows.join_asof(
        seen.sort("first"),
        left_on="sequence",
        right_on="first",
        by=_TASK,
        strategy="backward",
        check_sortedness=False,  # sorted in the lines above; polars cannot check it within groups and would warn
    )
    return nearest.filter((pl.col("last") >= pl.col("sequence")).fill_null(value=False).not_()).select(rows.columns)


def _ranges(seen: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Return disjoint ranges, those that touch merged."""
    every = pl.concat([seen, new.select(seen.columns)]).sort(*_TASK, "first")
    follows = (pl.struct(_TASK) == pl.struct(_TASK).shift()) & (pl.col("first") == pl.col("last").shift() + 1)
    numbered = every.with_columns(range=(~follows.fill_null(value=False)).cum_sum())
    merged = numbered.group_by("range", maintain_order=True).agg(
        *(pl.col(name).first() for name in (*_TASK, "first")), pl.col("last").last()
    )
    return merged.select(seen.columns)


assert set(ROW_COLUMNS) <= set(FRAME_SCHEMA)
