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
    """Return how many requests each of the providers that share `held` slots of one limit may have in flight.

    Args:
        held: slots of this process.
        uses: requests in flight and waiting, by provider.

    Each gets its fair share of what they want together, and what is left over is dealt out evenly, so that a provider
    without requests can start one without asking. A slot that is in use is given to another provider only once it is
    free: what is in flight and what may be started never add up to more than `held`.
    """
    targets = fair_shares(held, {name: used + waiting for name, (used, waiting) in uses.items()})
    left = held - sum(targets.values())
    even = fair_shares(left, dict.fromkeys(uses, left))
    targets = {name: targets[name] + even[name] for name in uses}
    free = held - sum(used for used, _ in uses.values())
    more = fair_shares(free, {name: max(0, targets[name] - used) for name, (used, _) in uses.items()})
    return {name: min(targets[name], used + more[name]) for name, (used, _) in uses.items()}
