"""The summary per model and environment, and the history from which a campaign resumes, both from one tally."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import polars as pl

from headgate.core import errors
from headgate.statistics import Method, mean_of_sums
from headgate.storage.frames import each_task_once, read_parts
from headgate.storage.manifest import FORMAT, Part, Problem, Visible, sealed, unsealed
from headgate.storage.marks import Marks
from headgate.storage.objects import SUMMARY_KEY, MissingObjectError, ObjectStore
from headgate.storage.schema import FRAME_SCHEMA

MINUTES_KEPT: Final = 25 * 60
"""Minute counts this long before the newest fold are dropped: a day, plus an hour for clocks that differ."""

ROW_COLUMNS: Final = (
    "task_id", "campaign", "model", "environment", "stage", "sequence", "score", "success", "error_kind", "finished_at",
    "latency_s", "prompt_tokens", "completion_tokens",
)  # fmt: skip
"""Columns that a fold reads."""

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
        seen: per campaign, pair and stage: ranges of the sequences folded in. A task id is the hash of exactly these,
            so the ranges identify every counted task, in space proportional to the number of gaps.
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
        """Return the tally plus the rows not yet in it; a row without `success` is seen but not counted as a sample."""
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
        """Return the tally as columns of plain values for JSON; long tables have one row per pair, with lists."""
        return {name: _nested(name, getattr(self, name)).to_dict(as_series=False) for name in SCHEMAS}

    @staticmethod
    def of_fields(fields: Mapping[str, Mapping[str, list[Any]]]) -> Tally:
        """Return the tally from the result of `fields`; invalid columns raise polars' errors."""
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
    rows = each_task_once(rows).unique([*_TASK, "sequence"], keep="first", maintain_order=True).sort("sequence")
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


_DAY_MINUTES: Final = 1_440
_RECENT_S: Final = 2 * 3_600.0

_Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval of a mean, and its method: see `MeanEstimate`."""

    low: float
    high: float
    method: Method


def interval_of(count: int, total: float, squares: float, *, is_binary: bool) -> Interval:
    """Return the interval of a mean from sum and sum of squares of the scores; [0, 1] for fewer than two."""
    if count < 2:
        return Interval(0.0, 1.0, "none")
    made = mean_of_sums(count, total, squares, is_binary=is_binary)
    return Interval(made.low, made.high, made.method)


@dataclass(frozen=True, slots=True)
class PairSummary:
    """One model in one environment, over everything in the store.

    Only scored samples count: an outcome without a score, such as a provider's failure, appears only in `errors` and
    `unscored`.

    Attributes:
        count_24h: scored samples that ended in the last 1 440 minutes.
        mean_score: None before the first scored sample.
        interval: 95 % confidence interval of the mean, with the method that gave it.
        success_rate: successes per scored sample; None before the first.
        errors: error kind -> samples; includes `bad_answer`, although it is scored.
        last_finished_at: wall time at which the latest sample ended, scored or not.
        mean_latency_s: of the scored samples; None before the first.
        prompt_tokens: prompt tokens of all samples, scored or not.
    """

    model: str
    environment: str
    count: int
    count_24h: int
    mean_score: float | None
    interval: Interval
    success_rate: float | None
    errors: Mapping[str, int]
    unscored: int
    last_finished_at: float
    mean_latency_s: float | None
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Every model and environment in the store, ordered by name.

    Attributes:
        pairs: models x environments with at least one sample.
        problems: manifests and parts that are left out because they cannot be read.
    """

    generated_at: float
    pairs: tuple[PairSummary, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class PairHistory:
    """The history from which a sampler resumes one model in one environment.

    Attributes:
        scored_by_minute: minute (wall seconds since the epoch // 60) -> scored samples that ended in it, for the last
            1 440 minutes, the current one included, oldest first; minutes without any are left out.
        last_finished_at: wall time at which the latest sample ended, None if that is over two hours ago.
        next_sequence: one above the highest sequence ever used.
        scored: number of all scored samples.
    """

    model: str
    environment: str
    scored_by_minute: Mapping[int, int]
    last_finished_at: float | None
    next_sequence: int
    scored: int


class RecentSample(NamedTuple):
    """The fields of a sample used to detect changes; `served_by` is empty if the endpoint did not name the model."""

    model: str
    environment: str
    task: int
    score: float | None
    finished_at: float
    served_by: str


@dataclass(frozen=True, slots=True)
class History:
    """The history from which a campaign resumes without a false boost, gap or burst after a restart.

    Attributes:
        at: wall time at which the 24 hours end.
        problems: manifests and parts that are left out because they cannot be read.
    """

    at: float
    pairs: Mapping[_Pair, PairHistory]
    problems: tuple[Problem, ...]


def summary_of(tally: Tally, now: float, problems: tuple[Problem, ...] = ()) -> Summary:
    """Return the summary of a tally as of wall time `now`."""
    kinds: defaultdict[_Pair, dict[str, int]] = defaultdict(dict)
    for model, environment, kind, rows in tally.errors.iter_rows():
        kinds[model, environment][kind] = rows
    recent = {pair: sum(minutes.values()) for pair, minutes in _day(tally, now).items()}
    pairs = tuple(
        _pair_summary(row, recent.get((row["model"], row["environment"]), 0), kinds[row["model"], row["environment"]])
        for row in tally.pairs.filter(pl.col("rows") > 0).iter_rows(named=True)
    )
    return Summary(now, pairs, problems)


def history_of(tally: Tally, now: float, problems: tuple[Problem, ...] = ()) -> History:
    """Return the history of a tally as of wall time `now`."""
    day = _day(tally, now)
    pairs = {}
    for row in tally.pairs.iter_rows(named=True):
        pair = (row["model"], row["environment"])
        minutes = day.get(pair, {})
        last = row["last_finished_at"]
        pairs[pair] = PairHistory(
            model=row["model"],
            environment=row["environment"],
            scored_by_minute=minutes,
            last_finished_at=last if last >= now - _RECENT_S else None,
            next_sequence=row["max_sequence"] + 1,
            scored=row["scored"],
        )
    return History(now, pairs, problems)


def _day(tally: Tally, now: float) -> dict[_Pair, dict[int, int]]:
    latest = int(now // 60)
    within = tally.minutes.filter(pl.col("minute").is_between(latest - _DAY_MINUTES + 1, latest))
    day: defaultdict[_Pair, dict[int, int]] = defaultdict(dict)
    for model, environment, minute, scored in within.iter_rows():
        day[model, environment][minute] = scored
    return dict(day)


def _pair_summary(row: Mapping[str, Any], count_24h: int, kinds: Mapping[str, int]) -> PairSummary:
    count = row["scored"]
    return PairSummary(
        model=row["model"],
        environment=row["environment"],
        count=count,
        count_24h=count_24h,
        mean_score=row["score_sum"] / count if count else None,
        interval=interval_of(count, row["score_sum"], row["score_square_sum"], is_binary=row["zero_or_one"] == count),
        success_rate=row["successes"] / count if count else None,
        errors=kinds,
        unscored=row["rows"] - count,
        last_finished_at=row["last_finished_at"],
        mean_latency_s=row["latency_sum"] / count if count else None,
        prompt_tokens=row["prompt_tokens"],
        completion_tokens=row["completion_tokens"],
    )


_FOLD_ROWS: Final = 200_000
"""Rows folded at once: enough that a fold's fixed cost is negligible, few enough that a rebuild's memory stays flat."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A tally, the manifests whose rows are all in it (the watermark), and the version of the marks applied."""

    tally: Tally
    manifests: frozenset[str]
    problems: tuple[Problem, ...] = ()
    marks: str = ""


_NOTHING: Final = Counted(Tally.empty(), frozenset())


class SummaryLedger:
    """The tally of one store, in memory and in `summary/latest.json`. Owned by the store; calls must not overlap.

    Writers of the object may overwrite one another, since each tally is consistent with its own watermark.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._counted: Counted | None = None

    def refreshed(self, visible: Visible, now: float) -> Counted:
        """Return the tally of what is visible, reading only manifests that are new since the last one."""
        before, told = (self._counted, ()) if self._counted is not None else self._load()
        self._counted = self._caught_up(before, visible, now)
        return replace(self._counted, problems=(*told, *self._counted.problems))

    def rebuilt(self, visible: Visible, now: float) -> Counted:
        """Return the tally of what is visible, reading every part again."""
        self._counted = self._caught_up(_NOTHING, visible, now)
        return self._counted

    def save(self, summary: Summary) -> None:
        """Write `summary/latest.json`: the summary for readers, and the tally from which the next refresh continues."""
        counted = self._counted or _NOTHING
        content = {
            "format": FORMAT,
            "generated_at": summary.generated_at,
            "manifests": sorted(counted.manifests),
            "marks": counted.marks,
            "pairs": [asdict(pair) for pair in summary.pairs],
            "tally": counted.tally.fields(),
        }
        self._objects.put_many([(SUMMARY_KEY, sealed(content))])

    def _load(self) -> tuple[Counted, tuple[Problem, ...]]:
        try:
            content = unsealed(self._objects.get(SUMMARY_KEY), SUMMARY_KEY)
            tally, manifests = Tally.of_fields(content["tally"]), frozenset(content["manifests"])
            return Counted(tally, manifests, marks=content.get("marks", "")), ()
        except MissingObjectError:
            return _NOTHING, ()
        except (errors.CorruptDataError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
            # This object is derived from the parts, so it is rebuilt from them.
            return _NOTHING, (Problem(SUMMARY_KEY, f"rebuilt from the parts: {error}"),)

    def _caught_up(self, before: Counted, visible: Visible, now: float) -> Counted:
        if before.marks != visible.marks.version:
            before = _NOTHING  # the tally does not know what each marked sample had contributed
        counted = before.manifests  # a compaction is counted if all the manifests that it merges were
        included = {
            one for one, manifest in visible.manifests.items()
            if manifest.batch_id in counted or (manifest.merges and counted.issuperset(manifest.merges))
        }  # fmt: skip
        fresh = [manifest for one, manifest in visible.manifests.items() if one not in included]
        owners = {part.path: manifest.batch_id for manifest in fresh for part in manifest.parts}
        problems: list[Problem] = []
        tally = before.tally
        for rows in _gathered(self._objects, [part for manifest in fresh for part in manifest.parts], problems):
            tally = tally.folded(_counting(rows, visible.marks), now)
        # A manifest with an unreadable part is retried next time; the ranges keep its other parts from counting twice.
        failed = {owners[problem.path] for problem in problems}
        complete = included | {manifest.batch_id for manifest in fresh} - failed
        return Counted(tally, frozenset(complete), (*visible.problems, *problems), visible.marks.version)


def _counting(rows: pl.DataFrame, marks: Marks) -> pl.DataFrame:
    """Return rows in the form to tally: an invalidated sample keeps its sequence and cost, but has no outcome."""
    if not marks.log:
        return rows
    found, outcome = marks.applied(rows, everything=True), ("score", "success", "error_kind")
    return found.with_columns(pl.when(~pl.col("invalid")).then(name).alias(name) for name in outcome)


def _gathered(objects: ObjectStore, parts: Sequence[Part], problems: list[Problem]) -> Iterator[pl.DataFrame]:
    """Yield the rows of the parts in frames of about `_FOLD_ROWS`."""
    frames: list[pl.DataFrame] = []
    for _, rows in read_parts(objects, parts, ROW_COLUMNS, problems):
        frames.append(rows)
        if sum(frame.height for frame in frames) >= _FOLD_ROWS:
            yield pl.concat(frames)
            frames = []
    if frames:
        yield pl.concat(frames)
