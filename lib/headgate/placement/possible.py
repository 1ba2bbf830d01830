"""What can never be placed, however long it waits: refused when it is handed in."""

from __future__ import annotations

from headgate.placement.book import Book
from headgate.placement.errors import CannotFitError
from headgate.placement.fitting import covers, place, take
from headgate.placement.group import Group
from headgate.placement.ladder import by_right, shape_of
from headgate.placement.occupancy import Occupancy
from headgate.placement.pool import GroupShape, Pool
from headgate.placement.request import PlacementRequest


def must_fit(book: Book, pool: Pool, request: PlacementRequest) -> None:
    """Refuse what would wait for ever. A cluster without nodes is one that is not seen yet.

    Raises:
        CannotFitError: no node, or not the pool's quota, could ever carry it.
    """
    if not request.size.fits(pool.quota):
        raise CannotFitError(
            f"{request.request_id} takes {request.size}, more than the quota of pool {pool.name}: {pool.quota}"
        )
    if not book.nodes:
        return
    waiting = Occupancy(request, "", 0.0, 0)
    shape = shape_of(waiting)
    empty = {node_id: dict(node.total.units) for node_id, node in book.nodes.items()}
    if place(shape, empty, book.nodes) is None:
        raise CannotFitError(_too_large(request, shape, book))
    reserved = [
        group for group in book.groups.values() if group.reserved is not None and group.group_id not in book.leaving
    ]
    if any(_may_use(waiting, pool, group, book) for group in reserved):
        return
    if pool.max_dynamic == 0:
        raise CannotFitError(
            f"{request.request_id} fits no reserved group that it may use, and pool {pool.name} makes no others "
            f"(max_dynamic 0)"
        )
    for group in reserved:
        for node, bundle in zip(group.nodes, group.shape.bundles, strict=True):
            if node in empty:
                take(empty[node], bundle)
    if place(shape, empty, book.nodes) is None:
        raise CannotFitError(
            f"{request.request_id} takes {request.size}, which does not fit beside the {len(reserved)} reserved "
            f"groups, and none of them is for it"
        )


def _may_use(waiting: Occupancy, pool: Pool, group: Group, book: Book) -> bool:
    """Tell whether a reserved group could carry a request, by right or on loan."""
    if group.pool != pool.name or not covers(group.shape, group.nodes, shape_of(waiting), book.nodes):
        return False
    on_loan = pool.lend_reserved and waiting.request.preemptible
    return (by_right(waiting, pool) or on_loan) and group.size.fits(pool.quota)


def _too_large(request: PlacementRequest, shape: GroupShape, book: Book) -> str:
    if not any(node.has(shape.node_labels) for node in book.nodes.values()):
        return f"{request.request_id} wants a node with labels {dict(shape.node_labels)}, and none has them"
    labels = f" with labels {dict(shape.node_labels)}" if shape.node_labels else ""
    largest = max(book.nodes.values(), key=lambda node: tuple(units for _, units in node.total.units))
    if request.is_gang:
        return (
            f"{request.request_id} takes {len(request.bundles)} bundles of up to {request.bundles[0]} under "
            f"{request.strategy}{labels}; {len(book.nodes)} nodes could not carry them even when empty"
        )
    return f"{request.request_id} takes {request.size}{labels}; the largest node has {largest.total}"
