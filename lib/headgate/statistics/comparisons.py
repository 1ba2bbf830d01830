"""Many comparisons at once: p-values that allow for their number, and groups that were not told apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's (1979) adjusted p-values, in the given order.

    Calling every comparison real whose adjusted value is at most a makes a false one with probability a at most,
    however the comparisons depend on each other.
    """
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        running = max(running, min(1.0, p_values[place] * (len(p_values) - step)))
        adjusted[place] = running
    return adjusted


def indistinct_groups(count: int, told_apart: Collection[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return the largest groups in which no two of 0 to `count` - 1 were told apart, ordered by their members.

    Two that share no group were told apart (the compact letter display of Piepho 2004, by insertion and absorption).
    """
    groups = [(1 << count) - 1] if count else []
    for first, second in sorted(told_apart):
        both = 1 << first | 1 << second
        split = [group for group in groups if group & both == both]
        groups = [group for group in groups if group & both != both]
        for part in [group & ~(1 << out) for group in split for out in (first, second)]:
            if not any(part & group == part for group in groups):
                groups = [group for group in groups if group & part != group]
                groups.append(part)
    return sorted(tuple(place for place in range(count) if group >> place & 1) for group in groups)
