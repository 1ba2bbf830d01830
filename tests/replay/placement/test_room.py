"""What is free, and where bundles go."""

from __future__ import annotations

import pytest

from headgate.placement.amounts import amounts
from headgate.placement.request import Strategy
from headgate_replay.placement import OvercommittedError
from headgate_replay.placement.engine import Room
from tests.replay.placement.conftest import small

ONE = amounts(gpu=1)


def room(nodes: int = 2, gpus: int = 4) -> Room:
    return Room(small(nodes, gpus).nodes)


def test_one_bundle_goes_where_the_least_is_left() -> None:
    found = room()
    two = found.shape_of((amounts(gpu=2),), "PACK")
    found.take(two, (1,))
    assert found.place(found.shape_of((ONE,), "PACK")) == (1,)


@pytest.mark.parametrize(
    ("strategy", "nodes"),
    [("PACK", {0}), ("STRICT_PACK", {0}), ("SPREAD", {0, 1}), ("STRICT_SPREAD", {0, 1})],
)
def test_a_gang_lies_as_its_strategy_says(strategy: Strategy, nodes: set[int]) -> None:
    found = room()
    assert set(found.place(found.shape_of((ONE, ONE), strategy)) or ()) == nodes


def test_strict_strategies_wait_where_the_others_make_do() -> None:
    found = room(nodes=2, gpus=2)
    three = (ONE, ONE, ONE)
    assert found.place(found.shape_of(three, "STRICT_PACK")) is None
    assert found.place(found.shape_of(three, "STRICT_SPREAD")) is None
    assert sorted(found.place(found.shape_of(three, "PACK")) or ()) == [0, 0, 1]
    assert sorted(found.place(found.shape_of(three, "SPREAD")) or ()) in ([0, 0, 1], [0, 1, 1])


def test_the_nodes_of_a_gang_are_told_in_the_order_of_its_bundles() -> None:
    found = room(nodes=2, gpus=4)
    shape = found.shape_of((ONE, amounts(gpu=4)), "PACK")
    nodes = found.place(shape)
    assert nodes is not None
    assert nodes[0] != nodes[1]
    found.take(shape, nodes)
    assert found.free[nodes[1]][1] == 0


def test_taking_more_than_there_is_is_an_error() -> None:
    found = room(nodes=1, gpus=1)
    shape = found.shape_of((ONE,), "PACK")
    found.take(shape, (0,))
    assert found.place(shape) is None
    with pytest.raises(OvercommittedError, match="beyond its GPU"):
        found.take(shape, (0,))


def test_what_is_given_back_is_free_again() -> None:
    found = room(nodes=1, gpus=1)
    shape = found.shape_of((ONE,), "PACK")
    found.take(shape, (0,))
    found.give(shape, (0,))
    assert found.free[0] == list(found.capacity[0])
