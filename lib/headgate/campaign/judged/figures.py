"""Counts of judged samples, and how far judgements of one answer agree."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from headgate.core import ErrorKind, Sample
from headgate.environments import Judgement
from headgate.statistics import Agreement, krippendorff

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


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """The samples of one model in one environment.

    Attributes:
        samples: recorded ones.
        scored: of them, those with a score.
        successes: of them, those that the environment calls a success.
        mean_score: None without a scored one.
        judgements: verdicts that the scores were made of.
        agreement: mean over samples with two judgements and more; None without any.
        judge_errors: samples without a verdict.
        errors: samples whose model or environment failed.
    """

    model: str
    environment: str
    samples: int
    scored: int
    successes: int
    mean_score: float | None
    judgements: int
    agreement: float | None
    judge_errors: int
    errors: int


@dataclass(slots=True)
class _Counts:
    samples: int = 0
    scored: int = 0
    successes: int = 0
    score_sum: float = 0.0
    judgements: int = 0
    agreed: int = 0
    agreement_sum: float = 0.0
    judge_errors: int = 0
    errors: int = 0


class JudgedFigures:
    """Counts by model and environment. Owned by one run, which may begin with those of earlier runs."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], _Counts] = {}
        self._values: dict[str, list[tuple[float, ...]]] = {}

    def add(self, sample: Sample) -> None:
        """Count a sample."""
        self.count(sample.model, sample.environment, sample.score, sample.error_kind, sample.why, sample.success)

    def count(
        self, model: str, environment: str, score: float | None, error_kind: str | None, why: str, success: bool
    ) -> None:
        """Count a sample by its columns."""
        counts = self._pairs.setdefault((model, environment), _Counts())
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
                self._values.setdefault(environment, []).append(values)

    def pairs(self) -> tuple[JudgedPair, ...]:
        """Return the counts, by environment and then by model."""
        ordered = sorted(self._pairs.items(), key=lambda item: (item[0][1], item[0][0]))
        return tuple(_pair(model, environment, counts) for (model, environment), counts in ordered)

    def agreements(self) -> tuple[tuple[str, Agreement], ...]:
        """Return how far the judgements of each environment agree, by environment; takes some milliseconds each."""
        made = ((environment, krippendorff(self._values[environment])) for environment in sorted(self._values))
        return tuple((environment, one) for environment, one in made if one is not None)


def _pair(model: str, environment: str, counts: _Counts) -> JudgedPair:
    return JudgedPair(
        model=model,
        environment=environment,
        samples=counts.samples,
        scored=counts.scored,
        successes=counts.successes,
        mean_score=counts.score_sum / counts.scored if counts.scored else None,
        judgements=counts.judgements,
        agreement=counts.agreement_sum / counts.agreed if counts.agreed else None,
        judge_errors=counts.judge_errors,
        errors=counts.errors,
    )
