"""From settings to comparisons: what `headgate arena` and its flow call."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Unpack

import polars as pl

from headgate.config import BudgetSettings, Settings
from headgate.core import Model
from headgate.core.errors import InvalidInputError
from headgate.environments import Environment, environment, environments
from headgate.environments.rubric import Rubric
from headgate.reports import ArenaComparison
from headgate.run.arena.answers import Answers, answered, stored_answers
from headgate.run.arena.comparisons import ORDERS, AgainstModel, BothOrders, StoredAnswers, shown_judge
from headgate.run.arena.pairings import Pairing, PairingProvider, chosen, possible
from headgate.run.arena.records import (
    ARENA_FOLDER,
    COLUMNS,
    comparison_environment,
    comparisons_of,
    of_stage,
    stage_of,
)
from headgate.run.assembly import Watch, run_source
from headgate.run.judging import Judging, judge_of, rubric_for
from headgate.run.status import RunResult
from headgate.sampling import RosterSource, StaticRoster, roster_source
from headgate.storage import SampleStore, sample_store
from headgate.telemetry import safe_text

_TAKE_ANSWERS: Final = "Sample at least two models with conversations kept, or give --instances to have them answer."
_LOOK_AT_ANSWERS: Final = (
    "The models were asked just now. To see why there is no answer: "
    'headgate query "select model, error_kind, error from samples where score is null"'
)


@dataclass(frozen=True, slots=True)
class ArenaRequest:
    """What to compare.

    Attributes:
        models: keys or names; all that have answered when empty.
        instances: compare only tasks with a lower index, and first sample their missing answers; None compares the
            existing answers.
        comparisons: the most comparisons that this run may ask for; None for all, 0 to report only stored ones.
        rubric: criteria for the judge; replaces the one that the settings name.
    """

    models: tuple[str, ...] = ()
    instances: int | None = None
    comparisons: int | None = None
    rubric: Rubric | None = None


@dataclass(frozen=True, slots=True)
class ArenaResult:
    """All comparisons so far, and what this run did.

    Attributes:
        comparisons: by this judge and rubric among these models, environments and tasks, from all runs.
        possible: pairs of answers that could be compared.
        unjudged: comparisons that were asked for but have no verdict.
        why_unjudged: what went wrong with one of them; empty if there are none.
        run: what this run did; None if there was nothing left to ask.
        warnings: caveats about the ratings, one sentence each.
    """

    judge: str
    comparisons: tuple[ArenaComparison, ...]
    possible: int
    unjudged: int
    why_unjudged: str
    run: RunResult | None
    warnings: tuple[str, ...]

    def sentence(self) -> str:
        """Return how many comparisons there are, how many of them are new, and how many have no verdict and why."""
        why = f" ({safe_text(self.why_unjudged, limit_chars=200)})" if self.why_unjudged else ""
        missing = f", {self.unjudged:,} without a verdict{why}" if self.unjudged else ""
        new = self.counts()["new"]
        known = f"{len(self.comparisons):,} of {self.possible:,} possible comparisons by {self.judge}"
        return f"{known}, {new:,} of them new{missing}"

    def counts(self) -> dict[str, Any]:
        """Return the counts that `--json` and the flow report."""
        return {
            "comparisons": len(self.comparisons),
            "possible": self.possible,
            "new": self.run.scored if self.run is not None else 0,
            "unjudged": self.unjudged,
            "why_unjudged": self.why_unjudged,
        }


async def run_arena(
    settings: Settings,
    request: ArenaRequest,
    *,
    judge: Model | None = None,
    roster: RosterSource | None = None,
    store: SampleStore | None = None,
    comparisons: SampleStore | None = None,
    **watch: Unpack[Watch],
) -> ArenaResult:
    """Have a judge compare answers that were not compared before, and return all comparisons.

    Args:
        settings: of the campaign; `judgements` says how often each of the two orders is judged.
        request: what to compare.
        judge: replaces the one that the settings name; not needed if no comparisons are asked for.
        roster: likewise; needed only with `instances`.
        store: of samples, likewise.
        comparisons: where comparisons are kept; the folder `arena` of the settings' store when None.
        **watch: callbacks and hooks; see `Watch`.

    Raises:
        HeadgateError: if an argument or a setting cannot be used, or there is nothing to compare.
    """
    stop = watch.get("stop")
    given = {name: watch.get(name) for name in ("stop", "slots", "engine_hosts")}
    if judge is None and request.comparisons != 0:
        judge = judge_of(settings)
    rubric = request.rubric if request.rubric is not None else rubric_for(settings)
    label = rubric.label if rubric is not None else ""
    samples = store if store is not None else sample_store(settings)
    beside = settings.model_copy(update={"store": f"{settings.store.rstrip('/')}/{ARENA_FOLDER}"})
    kept = comparisons if comparisons is not None else sample_store(beside)
    try:
        if judge is None:
            judge, stage = await shown_judge(settings, kept, label)
        else:
            stage = stage_of(judge.request_name, label)
        if request.instances is not None and request.comparisons != 0:
            source = roster if roster is not None else roster_source(settings.roster)
            await answered(settings, request.models, request.instances, judge, source, samples, **given)
        answers = await stored_answers(samples, environments=settings.environments, models=request.models)
        pairings = [p for p in possible(answers) if request.instances is None or p.index < request.instances]
        await _check_named(request.models, answers, samples, settings)
        _check(request, answers, pairings)
        before = await _rows(kept, settings.campaign, stage)
        asked = chosen(pairings, comparisons_of(before), request.comparisons, seed=settings.campaign)
        is_stopped = stop is not None and stop.is_set()
        run = None
        if asked and not is_stopped:
            await kept.probe()
            run = await run_source(
                _settings_of(settings, stage),
                roster=StaticRoster(_models_of(answers)),
                environments=(places := _environments(answers, rubric)),
                store=kept,
                source=PairingProvider(asked, stage, _failed(before)),
                judging=Judging(judge, BothOrders()),
                stop_when_idle=True,
                asked=lambda endpoints: StoredAnswers(
                    endpoints, answers, {name: place.base_name for name, place in places.items()}
                ),
                **watch,
            )
        after = await _rows(kept, settings.campaign, stage) if run is not None else before
    finally:
        if comparisons is None:
            kept.close()
        if store is None:
            samples.close()
    named = set(pairings)
    wanted = {(p.environment, p.index, p.first, p.second) for p in pairings}
    found = [c for c in comparisons_of(after) if (c.environment, c.index, c.first, c.second) in wanted]
    return ArenaResult(
        judge=judge.request_name,
        comparisons=tuple(found),
        possible=len(pairings),
        unjudged=sum(pairing in named for pairing in _failed(after)),
        why_unjudged=_why_unjudged(after),
        run=run,
        warnings=tuple(_warnings(judge, answers)),
    )


def _settings_of(settings: Settings, stage: str) -> Settings:
    """Return the settings of the comparisons' run: one journal per judge and rubric, lest a run finish another's tasks.

    Budgets of samples and models are dropped: reading stored answers costs nothing. The judge has its own.
    """
    digest = hashlib.blake2b(stage.encode(), digest_size=6).hexdigest()
    # One process runs the comparisons, and they can be repeated: a journal in a database would gain nothing.
    local = settings.journal if isinstance(settings.journal, Path) else Path(".headgate/journal")
    folder = local / ARENA_FOLDER / digest
    unlimited = {
        name: field.get_default(call_default_factory=True) for name, field in BudgetSettings.model_fields.items()
    }
    return settings.model_copy(update={"journal": folder, "judgements": ORDERS * settings.judgements} | unlimited)


async def _rows(store: SampleStore, campaign: str, stage: str) -> pl.DataFrame:
    return of_stage((await store.scan(columns=list(COLUMNS))).frame, campaign, stage)


def _failed(rows: pl.DataFrame) -> dict[Pairing, int]:
    """Return how many times each comparison without a verdict was asked for."""
    cells = rows.group_by("model", "environment", "index").agg(
        pl.col("score").is_not_null().any().alias("is_scored"), pl.len().alias("runs")
    )
    found = {}
    for model, place, index, is_scored, runs in cells.iter_rows():
        name, _, against = place.rpartition("/vs/")
        if not is_scored:
            found[Pairing(name, index, model, against)] = runs
    return found


def _why_unjudged(rows: pl.DataFrame) -> str:
    """Return the newest error of a comparison that still has no verdict."""
    has_verdict = pl.col("score").is_not_null().any().over("model", "environment", "index")
    told = rows.filter(~has_verdict, pl.col("error").is_not_null()).sort("finished_at")["error"]
    return str(told[-1]) if len(told) else ""


def _environments(answers: Answers, rubric: Rubric | None) -> dict[str, AgainstModel]:
    installed = frozenset(environments()) if rubric is None else frozenset[str]()
    bases: dict[str, Environment | None] = {}
    made = {}
    for (name, model), theirs in answers.items():
        if name not in bases:
            base = environment(name) if name in installed else None
            bases[name] = base if base is not None and base.spec.needs_judge else None
        made[comparison_environment(name, model)] = AgainstModel(name, model, theirs, rubric, bases[name])
    return made


def _models_of(answers: Answers) -> tuple[Model, ...]:
    """Return the models that have answered; none of them is asked again."""
    keys = sorted({model for _, model in answers})
    return tuple(Model(*key.rpartition("@")[::2], uid=uid) for uid, key in enumerate(keys))


async def _check_named(names: Sequence[str], answers: Answers, store: SampleStore, settings: Settings) -> None:
    found = {known for _, model in answers for known in (model, model.rpartition("@")[0])}
    missing = [name for name in names if name not in found]
    if missing:
        everything = await stored_answers(store, environments=settings.environments, models=())
        models = sorted({model for _, model in everything})
        raise InvalidInputError(
            f"the store has no answer by a model {missing[0]!r} in these environments",
            next_step=f"There are answers by {', '.join(models[:20]) or 'no model'}.",
        )


def _check(request: ArenaRequest, answers: Answers, pairings: Sequence[Pairing]) -> None:
    models = sorted({model for _, model in answers})
    if len(models) < 2:
        what = f"only {models[0]} has answers" if models else "no model has answers"
        raise InvalidInputError(
            f"{what} in the store that could be compared",
            next_step=_TAKE_ANSWERS if request.instances is None else _LOOK_AT_ANSWERS,
        )
    if not pairings:
        raise InvalidInputError(
            f"no two of the {len(models)} models have answered the same task",
            next_step="Give --instances N to have all of them answer the tasks 0 to N-1.",
        )


def _warnings(judge: Model, answers: Answers) -> Iterable[str]:
    for key in sorted({model for _, model in answers}):
        if key.rpartition("@")[0] == judge.request_name:
            yield f"the judge {judge.request_name} compares its own answers: judges tend to prefer what they wrote"
