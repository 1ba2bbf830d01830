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


def split_slots(held: int, uses: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return how `held` slots of one limit are split between the providers that share it.

    Args:
        held: slots of this process.
        uses: requests in flight and waiting, by provider.

    What is in flight keeps its slots first, then waiters get theirs, and the rest is dealt out evenly, so that a
    provider without requests can start one without asking. The parts never add up to more than `held`.
    """
    in_flight = {name: used for name, (used, _) in uses.items()}
    spare = held - sum(in_flight.values())
    if spare < 0:
        return fair_shares(held, in_flight)
    more = fair_shares(spare, {name: waiting for name, (_, waiting) in uses.items()})
    rest = spare - sum(more.values())
    even = fair_shares(rest, dict.fromkeys(uses, rest))
    return {name: in_flight[name] + more[name] + even[name] for name in uses}
