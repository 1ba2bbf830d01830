"""Victims placement by placement: sets that clear one node, or the nodes of a gang member by member.

One search over everything that runs is exact only while there is little of it. What a request needs lies on few
nodes, though, and on each of them there is little: a node at a time is searched exactly, and the best is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from headgate.placement.amounts import Amounts
from headgate.placement.book import Book
from headgate.placement.fitting import Room, fits, give, take
from headgate.placement.group import Group
from headgate.placement.pool import GroupShape
from headgate.placement.victims import Candidate, Sufficient, cheapest_set

Worth = tuple[int, float, int, float]


def worth(victims: Sequence[Candidate]) -> Worth:
    """Return what is minimised: highest band, lost work, number, and minus the latest start."""
    return (
        max((each.band for each in victims), default=0),
        fsum(each.cost for each in victims),
        len(victims),
        -max((each.started_at for each in victims), default=0.0),
    )


@dataclass(slots=True)
class Placements:
    """Searches around the nodes of a book. Changes nothing.

    Attributes:
        book: what there is.
        shape: what is to be placed.
        candidates: what may be stopped.
        groups: request id -> group of each candidate.
    """

    book: Book
    shape: GroupShape
    candidates: Sequence[Candidate]
    groups: Mapping[str, Group]

    def best(self, sufficient: Sufficient) -> tuple[Candidate, ...] | None:
        """Return the best sufficient set that any search finds, or None if stopping all would not be enough."""
        best = cheapest_set(self.candidates, sufficient)
        if best is None or len(best) == 0 or len(self.candidates) == 1:
            return best
        bands = max(each.band for each in best)
        for field in self._fields(bands):
            found = cheapest_set(field, sufficient)
            if found is not None and worth(found) < worth(best):
                best = found
        return best

    def _fields(self, highest_band: int) -> Iterator[list[Candidate]]:
        """Return candidates that belong together: of one node, or of the nodes of a gang."""
        able = [each for each in self.candidates if each.band <= highest_band]
        if len(self.shape.bundles) == 1 or self.shape.strategy in {"STRICT_PACK", "PACK"}:
            for node in self.book.nodes:
                field = [each for each in able if node in self.groups[each.request_id].nodes]
                if field:
                    yield field
        if len(self.shape.bundles) > 1 and self.shape.strategy != "STRICT_PACK":
            field = self._member_by_member(able)
            if field:
                yield field

    def _member_by_member(self, able: Sequence[Candidate]) -> list[Candidate]:
        """Return what clears each bundle of the gang in turn where that loses least."""
        room = self._room()
        chosen: list[Candidate] = []
        used: set[str] = set()
        for bundle in self.shape.bundles:
            left = [each for each in able if each not in chosen]
            found = self._cheapest_node(bundle, room, left, used)
            if found is None:
                return []
            node, victims = found
            for victim in victims:
                self._vacate(room, self.groups[victim.request_id])
            take(room[node], bundle)
            used.add(node)
            chosen.extend(victims)
        return chosen

    def _cheapest_node(
        self, bundle: Amounts, room: Room, left: Sequence[Candidate], used: set[str]
    ) -> tuple[str, tuple[Candidate, ...]] | None:
        spread = self.shape.strategy in {"SPREAD", "STRICT_SPREAD"}
        best: tuple[Worth, str, tuple[Candidate, ...]] | None = None
        for node_id, node in self.book.nodes.items():
            if (spread and node_id in used) or not node.has(self.shape.node_labels):
                continue
            there = {each.request_id: each for each in left if node_id in self.groups[each.request_id].nodes}

            def clears(gone: frozenset[str], at: str = node_id) -> bool:
                units = dict(room[at])
                for request_id in gone:
                    self._vacate({at: units}, self.groups[request_id])
                return fits(units, bundle)

            victims = cheapest_set(list(there.values()), clears)
            if victims is not None and (best is None or (worth(victims), node_id) < best[:2]):
                best = (worth(victims), node_id, victims)
        return None if best is None else best[1:]

    def _room(self) -> Room:
        """Return the room of the nodes with idle dynamic groups gone, which cost nothing."""
        room: Room = {node: dict(units) for node, units in self.book.room.items()}
        for group in self.book.free_groups():
            self._vacate(room, group)
        return room

    def _vacate(self, room: Room, group: Group) -> None:
        if group.reserved is not None or group.group_id in self.book.leaving:
            return
        for node, bundle in zip(group.nodes, group.shape.bundles, strict=False):
            if node in room:
                give(room[node], bundle)
