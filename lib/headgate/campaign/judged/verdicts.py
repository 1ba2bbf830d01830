"""How a judge's replies become judgements, and these a score: by the environment's own rule, or by another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headgate.campaign.judged.figures import note
from headgate.environments import REMINDER, JudgedEnvironment, Judgement, Score, judged_score, read_reply


class Verdicts(Protocol):
    """What a run asks about the replies to its questions; judgements have their number, from 1."""

    @property
    def reminder(self) -> str:
        """What a judge is told whose reply could not be read."""
        ...

    def read(self, environment: JudgedEnvironment, number: int, reply: str) -> Judgement | None:
        """Return what the reply to question `number` says; None when it cannot be read.

        Raises:
            EnvironmentFailedError: if the environment failed on it.
        """
        ...

    def score(self, environment: JudgedEnvironment, judgements: Mapping[int, Judgement], asked: int) -> Score | None:
        """Return the score that at least one judgement makes, with the sample's reason; None if too few are there.

        Raises:
            EnvironmentFailedError: if the environment failed on them.
        """
        ...


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
