"""What a ranking decided, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headgate.sampling import NEXT_SAMPLES, RankedPair, RankingReport

_MOST_LINES: Final = 45
_WORDS: Final = {"better": "is better than", "not worse": "comes before", "alike": "is as good as"}
_MIRRORED: Final = {"worse": "better", "not better": "not worse"}


def ranking_lines(report: RankingReport) -> list[str]:
    """Return how many pairs are ranked, each of at most 45 in a line, and what more samples would decide."""
    pairs = len(report.pairs)
    lines = [f"{pairs - report.open} of {pairs} pairs of models are ranked, all rightly with a probability of 95 %"]
    decided = [pair for pair in report.pairs if pair.verdict != "open"]
    lines += _shown(decided)
    if report.open:
        lines.append(
            f"{report.open} not ranked yet; the next {NEXT_SAMPLES} samples would rank about {report.next_decides:.0f}"
        )
        lines += _shown([pair for pair in report.pairs if pair.verdict == "open"])
    return lines


def _shown(pairs: list[RankedPair]) -> Iterator[str]:
    yield from map(_line, pairs[:_MOST_LINES])
    if len(pairs) > _MOST_LINES:
        yield f"and {len(pairs) - _MOST_LINES} more: --json has them all"


def _line(pair: RankedPair) -> str:
    first, second, difference, low, high = pair.first, pair.second, pair.difference, pair.low, pair.high
    verdict: str = pair.verdict
    if verdict in _MIRRORED or (verdict not in _WORDS and difference < 0):
        first, second, difference, low, high = second, first, -difference, -high, -low
        verdict = _MIRRORED.get(verdict, verdict)
    words = _WORDS.get(verdict, "and")
    sure = f", {pair.certainty:.1%} sure" if pair.certainty else ""
    return f"{first} {words} {second}: {difference:+.3f} [{low:+.3f}, {high:+.3f}] on {pair.tasks} tasks{sure}"
