"""How numbers and times are written in a report, and what each figure means."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

DEFINITIONS: Final[Mapping[str, str]] = {
    "sample": "One outcome of one task. Rows with the same task id are counted once: the scored one if there is one, "
    "else the one that ended first.",
    "mean score": "The plain mean over the scored samples. Scores lie between 0 and 1.",
    "95 % interval": "Wilson's interval where every score is 0 or 1, Student's t otherwise. After one score that is "
    "neither, it is the whole range from 0 to 1, since nothing is known of the spread.",
    "leaderboard": "The plain mean of a model's means over its environments, each environment counting the same; its "
    "interval combines theirs (MOVER). Models scored in more of the environments come first, since a mean over fewer "
    "is not comparable.",
    "success": "The share of the scored samples that their environment calls a success.",
    "errors": "Samples with an error of any kind, those of the model itself (bad_answer, budget) included.",
    "missing score": "A failure of the provider, of the environment or of the judge, a cancelled sample, and one that "
    "no day's budget has room for (daily_budget), has no score. It is never counted as 0; it is left out of means and "
    "shown below. An answer that cannot be used (bad_answer), and a sample's budget used up (budget), is the model's "
    "own and scores 0.",
    "provider error": "rate_limited, provider_failure, provider_timeout, auth, bad_request or connection, after every "
    "retry that the policy allows.",
    "if missing were 0, if missing were 1": "The model's mean over all of its samples had every missing score been 0, "
    "or 1. The mean that no error had hidden lies between the two: when they are far apart, read the mean with care.",
    "latency": "Duration of a scored episode, model calls and environment together. p50 is the median; 5 % take longer "
    "than p95.",
    "tokens": "Prompt and completion tokens of all samples, as the endpoints count them.",
}
"""Term -> what it means."""


def score(value: float | None) -> str:
    """Return a score with three digits; a dash when there is none."""
    return "–" if value is None else f"{value:.3f}"


def interval(low: float | None, high: float | None) -> str:
    """Return `0.512 – 0.733`; a dash when there is none."""
    return "–" if low is None or high is None else f"{low:.3f} – {high:.3f}"


def percent(share: float | None) -> str:
    """Return a share as a percentage; what is not quite 0 or 100 is not written as if it were."""
    if share is None:
        return "–"
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %"


def seconds(value: float | None) -> str:
    """Return a duration with a sensible number of digits; a dash when there is none."""
    if value is None:
        return "–"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f} s"


def count(value: int | None) -> str:
    """Return an integer with thousands marked."""
    return "–" if value is None else f"{value:,}"


def moment(at: float | None) -> str:
    """Return a time since the epoch as UTC."""
    return "–" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
