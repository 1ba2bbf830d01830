"""Fair shares of one whole: what each contender may have when not all of them can have what they want."""

from __future__ import annotations

from collections.abc import Mapping


def fair_shares(total: int, wants: Mapping[str, int]) -> dict[str, int]:
    """Return max-min fair whole shares: nobody gets more than he wants, and what one leaves goes to the others.

    Shares of contenders who get less than they want differ by one at most, always for the same ones, so that processes
    which compute this for themselves agree. They add up to `total`, or to all that is wanted when that is less.
    """
    shares: dict[str, int] = {}
    left = max(0, total)
    # The modest first: each gets an equal part of what is left, or all that he wants.
    order = sorted(wants, key=lambda name: (wants[name], name))
    for position, name in enumerate(order):
        shares[name] = min(max(0, wants[name]), left // (len(order) - position))
        left -= shares[name]
    return shares
