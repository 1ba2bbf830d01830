"""Replies of judges, through an environment whose mistakes are never held against model or judge."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.core.errors import EnvironmentFailedError
from headgate.environments.episode import checked_score, storable
from headgate.environments.protocol import JudgedEnvironment, Judgement, Score


def read_reply(environment: JudgedEnvironment, reply: str) -> Judgement | None:
    """Return what the environment reads in a judge's reply, None when it can read nothing.

    Raises:
        EnvironmentFailedError: if the environment raised, or read what is no judgement.
    """
    try:
        judgement = environment.judgement(storable(reply))
    except Exception as error:
        raise _failed(f"{type(error).__name__}: {error}") from error
    if judgement is not None and not (isinstance(judgement, Judgement) and 0.0 <= judgement.value <= 1.0):
        raise _failed(f"a judgement must be in [0, 1] (got {judgement!r:.80})")
    return judgement


def judged_score(environment: JudgedEnvironment, judgements: Sequence[Judgement]) -> Score:
    """Return the score that the environment makes of one judgement or several.

    Raises:
        EnvironmentFailedError: if the environment raised, or made what is no score.
    """
    try:
        score = environment.verdict(judgements)
    except Exception as error:
        raise _failed(f"{type(error).__name__}: {error}") from error
    if not isinstance(score, Score):
        raise _failed(f"it made {score!r:.80} of the judgements, not a Score")
    try:
        return checked_score(score)
    except (TypeError, ValueError) as error:
        raise _failed(str(error)) from None


def _failed(what: str) -> EnvironmentFailedError:
    return EnvironmentFailedError(f"the environment failed on a judge's reply: {what}")
