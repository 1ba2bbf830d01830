"""Who judges, how a judge's replies become judgements and a score, and what the judged samples come to."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final, Protocol

from headgate.config import Settings
from headgate.core import Chat, ErrorKind, Model, ModelBudget, Sample, Secret, Task
from headgate.core.errors import InvalidSettingError
from headgate.core.events import Emit
from headgate.core.status import JudgedPair
from headgate.environments import (
    JudgedEnvironment,
    Judgement,
    Score,
)
from headgate.environments.judge_questions import REMINDER, judged_score, read_reply
from headgate.environments.rubric import Rubric, RubricEnvironment, load_rubric
from headgate.run.dispatch import ROLLOUT
from headgate.statistics import Agreement, krippendorff

if TYPE_CHECKING:
    from headgate.run.plan import ChatSource


JUDGE_PREFIX: Final = "judge:"
"""The judge's key begins with it, so that a model may judge and be judged in one run, by limits of its own each."""


def judge_of(settings: Settings) -> Model:
    """Return the judge that the settings name.

    Raises:
        InvalidSettingError: if they name none, or no address of it.
        InvalidNameError: if its name has a form that cannot be used.
    """
    for name in ("judge_model", "judge_url"):
        if not getattr(settings, name):
            raise InvalidSettingError(
                f"setting {name!r} is empty: a run with a judge needs a model that judges, and its address",
                next_step="Give --judge-model and --judge-url; `headgate serve-baselines` serves baseline-judge.",
            )
    return Model(
        name=f"{JUDGE_PREFIX}{settings.judge_model}",
        base_url=settings.judge_url,
        served_name=settings.judge_model,
        api_key=Secret(settings.judge_key.get_secret_value()),
        max_parallel=settings.judge_parallel,
        options=tuple(sorted(settings.judge_options.items())),
        budget=ModelBudget(daily_tokens=settings.judge_daily_tokens),
    )


def rubric_for(settings: Settings) -> Rubric | None:
    """Return the rubric that the settings name, None when they name none.

    Raises:
        InvalidInputError: if its file cannot be read, or breaks a rule of rubrics.
    """
    return load_rubric(Path(settings.rubric).expanduser()) if settings.rubric else None


@dataclass(frozen=True, slots=True)
class RubricChats:
    """Tells the models which task it is that they answer: that of the environment under the rubric."""

    chats: ChatSource
    environments: dict[str, RubricEnvironment]

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:
        """Return what answers one episode."""
        under = self.environments.get(task.environment) if task.stage == ROLLOUT else None
        if under is not None:
            task = replace(task, environment=under.base.spec.name, seed=under.seed(task.index))
        return self.chats.chat(model, task, emit, trace_id=trace_id)


class Verdicts(Protocol):
    """What a run asks about the replies to its questions; judgements have their number, from 1."""

    @property
    def reminder(self) -> str:
        """What a judge is told whose reply could not be read."""

    def read(self, environment: JudgedEnvironment, number: int, reply: str) -> Judgement | None:
        """Return what the reply to question `number` says; None when it cannot be read.

        Raises:
            EnvironmentFailedError: if the environment failed on it.
        """

    def score(self, environment: JudgedEnvironment, judgements: Mapping[int, Judgement], asked: int) -> Score | None:
        """Return the score that at least one judgement makes, with the sample's reason; None if too few are there.

        Raises:
            EnvironmentFailedError: if the environment failed on them.
        """


class EnvironmentVerdicts:
    """The environment's own rule; any judgement is enough. Implements `Verdicts`; stateless."""

    reminder = REMINDER

    def read(self, environment: JudgedEnvironment, number: int, reply: str) -> Judgement | None:
        """Return what the environment reads in the reply."""
        del number
        return read_reply(environment, reply)

    def score(self, environment: JudgedEnvironment, judgements: Mapping[int, Judgement], asked: int) -> Score | None:
        """Return what the environment makes of the judgements, and how far these agree."""
        given = [judgements[number] for number in sorted(judgements)]
        score = judged_score(environment, given)
        return Score(score.value, score.success, note(given, asked, score.why))


_NOTE: Final = re.compile(r"(\d+) of \d+ judgements?(?: agree to (\d\.\d\d) \(([^()]*)\))?[ :(]")


def agreement(values: Sequence[float]) -> float | None:
    """Return 1 minus the mean distance between two judgements of one answer: 1 when all are equal, None for one."""
    pairs = list(itertools.combinations(values, 2))
    return 1.0 - fmean(abs(one - other) for one, other in pairs) if pairs else None


def note(judgements: Sequence[Judgement], asked: int, why: str) -> str:
    """Return a sample's `why`: how many judgements of how many, how far they agree, and the environment's reason."""
    values = [judgement.value for judgement in judgements]
    agreed = agreement(values)
    count = f"{len(values)} of {asked} judgement{'s' * (asked > 1)}"
    if agreed is not None:
        count += f" agree to {agreed:.2f} ({', '.join(f'{value:.2f}' for value in values)})"
    return f"{count}: {why}"


def read_note(why: str) -> tuple[int, float | None]:
    """Return how many judgements a sample's `why` states, and their agreement: what `note` wrote there."""
    match = _NOTE.match(why)
    if match is None:
        return 0, None
    return int(match[1]), float(match[2]) if match[2] else None


def noted_values(why: str) -> tuple[float, ...]:
    """Return the judgements that a sample's `why` lists, two and more; none where it states their range alone."""
    match = _NOTE.match(why)
    if match is None or not match[3]:
        return ()
    values = [float(each) for each in match[3].replace(" to ", ", ").split(", ") if _VALUE.fullmatch(each)]
    return tuple(values) if len(values) == int(match[1]) else ()


_VALUE: Final = re.compile(r"[01]\.\d\d")


_MOST_VALUES: Final = 20_000
"""Samples of an environment with several judgements of which it is said how far they agree, the latest."""


class JudgedFigures:
    """Counts by model and environment. Owned by one run, which may begin with those of earlier runs."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], JudgedPair] = {}
        self._values: defaultdict[str, deque[tuple[float, ...]]] = defaultdict(lambda: deque(maxlen=_MOST_VALUES))

    def add(self, sample: Sample) -> None:
        """Count a sample."""
        self.count(sample.model, sample.environment, sample.score, sample.error_kind, sample.why, sample.success)

    def count(
        self, model: str, environment: str, score: float | None, error_kind: str | None, why: str, success: bool
    ) -> None:
        """Count a sample by its columns."""
        counts = self._pairs.setdefault((model, environment), JudgedPair(model, environment))
        counts.samples += 1
        if score is None:
            is_judges = error_kind == ErrorKind.JUDGE
            counts.judge_errors += is_judges
            counts.errors += not is_judges
            return
        counts.scored += 1
        counts.successes += success
        counts.score_sum += score
        judgements, agreed = read_note(why)
        counts.judgements += judgements
        if agreed is not None:
            counts.agreed += 1
            counts.agreement_sum += agreed
            if values := noted_values(why):
                self._values[environment].append(values)

    def forget(self, model: str) -> None:
        """Drop the counts of a model."""
        self._pairs = {key: pair for key, pair in self._pairs.items() if key[0] != model}

    def pairs(self) -> tuple[JudgedPair, ...]:
        """Return the counts, by environment and then by model."""
        return tuple(replace(pair) for pair in sorted(self._pairs.values(), key=lambda p: (p.environment, p.model)))

    def agreements(self) -> tuple[tuple[str, Agreement], ...]:
        """Return how far the latest judgements of each environment agree, by environment; takes some milliseconds."""
        made = ((environment, krippendorff(self._values[environment])) for environment in sorted(self._values))
        return tuple((environment, one) for environment, one in made if one is not None)


@dataclass(frozen=True, slots=True)
class Judging:
    """Who judges the answers of a run, and by which rule.

    Attributes:
        judge: the model that judges; its key is that of no other model.
        verdicts: how replies become judgements, and these a score.
        figures: counts so far, of samples that earlier runs took.
    """

    judge: Model
    verdicts: Verdicts = field(default_factory=EnvironmentVerdicts)
    figures: JudgedFigures = field(default_factory=JudgedFigures)
