"""The judge of a run, how its replies become judgements and a score, and the counts of judged samples."""

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
from headgate.sampling import base_url_problem
from headgate.statistics import Agreement, krippendorff

if TYPE_CHECKING:
    from headgate.run.plan import ChatSource


JUDGE_PREFIX: Final = "judge:"
"""Prefix of the judge's key, so that a model may judge and be judged in one run, with separate limits for each role."""


def judge_of(settings: Settings) -> Model:
    """Return the judge that the settings name.

    Raises:
        InvalidSettingError: if they name no judge, or no usable address for it.
        InvalidNameError: if its name is malformed.
    """
    for name in ("judge_model", "judge_url"):
        if not getattr(settings, name):
            raise InvalidSettingError(
                f"setting {name!r} is empty: a run with a judge needs a model that judges, and its address",
                next_step="Give --judge-model and --judge-url; `headgate serve-baselines` serves baseline-judge.",
            )
    if problem := base_url_problem(settings.judge_url):
        raise InvalidSettingError(f"setting 'judge_url' {problem}", next_step="The setting judge_key holds its key.")
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
    """Return the rubric that the settings name; None if they name none.

    Raises:
        InvalidInputError: if its file cannot be read or is not a valid rubric.
    """
    return load_rubric(Path(settings.rubric).expanduser()) if settings.rubric else None


@dataclass(frozen=True, slots=True)
class RubricChats:
    """Gives models the task of the environment beneath the rubric in place of the rubric's own."""

    chats: ChatSource
    environments: dict[str, RubricEnvironment]

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:
        """Return the chat that answers one episode."""
        under = self.environments.get(task.environment) if task.stage == ROLLOUT else None
        if under is not None:
            task = replace(task, environment=under.base.spec.name, seed=under.seed(task.index))
        return self.chats.chat(model, task, emit, trace_id=trace_id)


class Verdicts(Protocol):
    """The rule by which a run reads a judge's replies and scores an answer; judgements are numbered from 1."""

    @property
    def reminder(self) -> str:
        """The message to a judge whose reply could not be read."""

    def read(self, environment: JudgedEnvironment, number: int, reply: str) -> Judgement | None:
        """Return the judgement in the reply to question `number`; None if it cannot be read.

        Raises:
            EnvironmentFailedError: if the environment failed on it.
        """

    def score(self, environment: JudgedEnvironment, judgements: Mapping[int, Judgement], asked: int) -> Score | None:
        """Return the score that one or more judgements make, with the sample's reason; None if there are too few.

        Raises:
            EnvironmentFailedError: if the environment failed on them.
        """


class EnvironmentVerdicts:
    """The environment's own rule; any judgement is enough. Implements `Verdicts`; stateless."""

    reminder = REMINDER

    def read(self, environment: JudgedEnvironment, number: int, reply: str) -> Judgement | None:
        """Return the judgement that the environment finds in the reply."""
        del number
        return read_reply(environment, reply)

    def score(self, environment: JudgedEnvironment, judgements: Mapping[int, Judgement], asked: int) -> Score | None:
        """Return the environment's score of the judgements, with how far they agree."""
        given = [judgements[number] for number in sorted(judgements)]
        score = judged_score(environment, given)
        return Score(score.value, score.success, note(given, asked, score.why))


_NOTE: Final = re.compile(r"(\d+) of \d+ judgements?(?: agree to (\d\.\d\d) \(([^()]*)\))?[ :(]")


def agreement(values: Sequence[float]) -> float | None:
    """Return 1 minus the mean distance between two judgements of one answer: 1 when all are equal, None for one."""
    pairs = list(itertools.combinations(values, 2))
    return 1.0 - fmean(abs(one - other) for one, other in pairs) if pairs else None


def note(judgements: Sequence[Judgement], asked: int, why: str) -> str:
    """Return a sample's `why`: how many of `asked` judgements there are, how far they agree, and the reason."""
    values = [judgement.value for judgement in judgements]
    agreed = agreement(values)
    count = f"{len(values)} of {asked} judgement{'s' * (asked > 1)}"
    if agreed is not None:
        count += f" agree to {agreed:.2f} ({', '.join(f'{value:.2f}' for value in values)})"
    return f"{count}: {why}"


def read_note(why: str) -> tuple[int, float | None]:
    """Return how many judgements a sample's `why` states, and their agreement, as written by `note`."""
    match = _NOTE.match(why)
    if match is None:
        return 0, None
    return int(match[1]), float(match[2]) if match[2] else None


def noted_values(why: str) -> tuple[float, ...]:
    """Return the judgements that a sample's `why` lists, two or more; none if it only states their range."""
    match = _NOTE.match(why)
    if match is None or not match[3]:
        return ()
    values = [float(each) for each in match[3].replace(" to ", ", ").split(", ") if _VALUE.fullmatch(each)]
    return tuple(values) if len(values) == int(match[1]) else ()


_VALUE: Final = re.compile(r"[01]\.\d\d")


_MOST_VALUES: Final = 20_000
"""The latest samples with several judgements over which an environment's agreement is computed."""


class JudgedFigures:
    """Counts of judged samples by model and environment. Owned by one run; may start from earlier runs' counts."""

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
        """Return the counts, sorted by environment and then by model."""
        return tuple(replace(pair) for pair in sorted(self._pairs.values(), key=lambda p: (p.environment, p.model)))

    def agreements(self) -> tuple[tuple[str, Agreement], ...]:
        """Return how far each environment's latest judgements agree, by environment; takes a few milliseconds."""
        made = ((environment, krippendorff(self._values[environment])) for environment in sorted(self._values))
        return tuple((environment, one) for environment, one in made if one is not None)


@dataclass(frozen=True, slots=True)
class Judging:
    """The judge of a run's answers, and its rule.

    Attributes:
        judge: the model that judges; no other model has its key.
        verdicts: turns replies into judgements, and judgements into a score.
        figures: counts, which start from the samples of earlier runs.
    """

    judge: Model
    verdicts: Verdicts = field(default_factory=EnvironmentVerdicts)
    figures: JudgedFigures = field(default_factory=JudgedFigures)
