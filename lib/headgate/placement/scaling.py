"""Scales pools written for a larger cluster down to what this cluster's nodes have."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headgate.placement.amounts import CPU, MEMORY, Amounts, of_units, total
from headgate.placement.checks import PoolSpec
from headgate.placement.errors import CannotFitError
from headgate.placement.holdings import place, take
from headgate.placement.pool import GroupShape, NodeView, Pool

MIN_FACTOR: Final = 0.25
"""Nothing is scaled below a quarter of its written size."""

_PARTS: Final = 1_000
_SCALED: Final = frozenset({CPU, MEMORY})


def scaled(spec: PoolSpec, nodes: Sequence[NodeView]) -> tuple[Pool, float]:
    """Return the pool scaled by the largest factor <= 1 at which all its reserved groups fit on the nodes together.

    The quota is scaled by the same factor, which is lowered, too, if the cluster has less than the quota. Only CPU and
    memory are scaled; GPUs and named resources are indivisible and stay as written.

    Raises:
        CannotFitError: the reserved groups do not fit even at a quarter of their size.
    """
    written = spec.as_pool()
    most = _factor_of_quota(written, nodes)
    # Going down in steps of a thousandth, the first factor at which everything fits.
    least = round(MIN_FACTOR * _PARTS)
    parts = range(most, least - 1, -1)
    found = bisect_left(parts, True, key=lambda part: _lie_together(_shrunk(written, part).reserved, nodes))
    if found == len(parts):
        raise _cannot_fit(_shrunk(written, least), written, nodes)
    return _shrunk(written, parts[found]), parts[found] / _PARTS


def scaled_amounts(written: Amounts, factor: float) -> Amounts:
    """Return amounts scaled as by `scaled`, for requests of a scaled pool; never less than one unit."""
    return _part_of(written, round(factor * _PARTS))


def homeless(pool: Pool, nodes: Sequence[NodeView]) -> tuple[int, ...]:
    """Return the indices of a pool's reserved groups that would not fit on the nodes even if these were empty."""
    return tuple(number for number, shape in enumerate(pool.reserved) if not _lie_together([shape], nodes))


def _part_of(written: Amounts, parts: int) -> Amounts:
    return of_units(
        {name: max(1, units * parts // _PARTS) if name in _SCALED else units for name, units in written.units}
    )


def _shrunk(pool: Pool, parts: int) -> Pool:
    shapes = tuple(replace(each, bundles=tuple(_part_of(b, parts) for b in each.bundles)) for each in pool.reserved)
    # Tiny amounts are rounded up to one unit, so together they may exceed the scaled quota.
    together = total(each.size for each in shapes)
    quota = {name: max(units, together.get(name)) for name, units in _part_of(pool.quota, parts).units}
    return replace(pool, quota=of_units(quota), reserved=shapes)


def _factor_of_quota(pool: Pool, nodes: Sequence[NodeView]) -> int:
    have = dict(total(node.total for node in nodes).units)
    factors = [have.get(name, 0) * _PARTS // units for name, units in pool.quota.units if name in _SCALED]
    return max(round(MIN_FACTOR * _PARTS), min([_PARTS, *factors]))


def _lie_together(shapes: Sequence[GroupShape], nodes: Sequence[NodeView]) -> bool:
    """Tell whether all shapes fit together, placed as by the ledger, the largest first."""
    room = {node.node_id: dict(node.total.units) for node in nodes}
    views = {node.node_id: node for node in nodes}
    whole = total(node.total for node in nodes)
    for shape in sorted(shapes, key=lambda each: each.size.share_of(whole), reverse=True):
        lies = place(shape, room, views)
        if lies is None:
            return False
        for node, bundle in zip(lies, shape.bundles, strict=True):
            take(room[node], bundle)
    return True


def _cannot_fit(least: Pool, written: Pool, nodes: Sequence[NodeView]) -> CannotFitError:
    step = "Make the reserved groups smaller or fewer, or add a node."
    if not nodes:
        return CannotFitError(f"Pool {written.name} cannot open: the cluster has no node", next_step="Add a node.")
    largest = max(nodes, key=lambda node: node.total.share_of(total(each.total for each in nodes)))
    has = f"the largest node {largest.node_id} has {largest.total}"
    for number, (small, shape) in enumerate(zip(least.reserved, written.reserved, strict=True)):
        if not _lie_together([small], nodes):
            return CannotFitError(
                f"Reserved group {number} of pool {written.name} ({shape.size}, {shape.strategy}) fits on no node even "
                f"at {MIN_FACTOR:g} of its CPU and memory; {has}",
                next_step=step,
            )
    return CannotFitError(
        f"The {len(written.reserved)} reserved groups of pool {written.name} take "
        f"{total(shape.size for shape in written.reserved)}; the nodes do not hold them together even at "
        f"{MIN_FACTOR:g} of their CPU and memory; {has}",
        next_step=step,
    )
