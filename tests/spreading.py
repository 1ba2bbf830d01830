"""How `make test` spreads the tests over its processes: whole files, those that share a server or cluster together."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.house.tree import ROOT

_ASKS_FOR_PREFECT: Final = re.compile(r"\bprefect(_server|_worker)?: |usefixtures\(\"prefect\"\)")
"""A test's argument or mark that starts the shared server, which costs 20 s of CPU and as much memory as all else."""

_ON_RAY: Final = (
    "tests/placement/client/",
    "tests/placement/cluster/",
    "tests/placement/test_schedulemesh.py",
    "tests/orchestration/test_elastic_placed.py",
    "tests/orchestration/test_served_on_ray.py",
)
"""Where the tests are that share one Ray cluster, which costs ten seconds and nearly a gigabyte."""

_WITH_SERVERS_S: Final = 2.0
"""What a test with real servers or processes takes, about; others take next to nothing."""


class Spreading(LoadFileScheduling):
    """Gives each process whole files, because fixtures of a module are made once per process."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """Return the name of the tests that one process runs one after the other: a file, or files that share a server."""
    file = nodeid.split("::", 1)[0]
    if file.startswith(_ON_RAY):
        return "the shared Ray cluster"
    if _shares_prefect(file):
        return "the shared Prefect server"
    return file


def longest_first(items: list[pytest.Item]) -> None:
    """Put the groups that take longest first, so that none is left alone with one process at the end.

    The order is the same in whatever order the files were collected.
    """
    weights: Counter[str] = Counter()
    for item in items:
        weights[group(item.nodeid)] += _expected_s(item)
    items.sort(key=lambda item: (-weights[group(item.nodeid)], group(item.nodeid), item.location[0]))


def _expected_s(item: pytest.Item) -> float:
    if limit := item.get_closest_marker("timeout"):
        return float(limit.args[0]) / 10
    return _WITH_SERVERS_S if item.get_closest_marker("slow") or item.get_closest_marker("chaos") else 0.02


@cache
def _shares_prefect(file: str) -> bool:
    return bool(_ASKS_FOR_PREFECT.search((ROOT / file).read_text()))
