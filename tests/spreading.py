"""How `make test` spreads the tests over its processes: whole files, those that share a server or cluster together."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from xdist.scheduler import LoadFileScheduling

from tests.house.tree import ROOT

_ASKS_FOR_PREFECT: Final = re.compile(r"\bprefect(_server|_worker)?: ")
"""A test's argument that starts the shared server, which costs ten seconds and as much memory as all else."""

_ON_RAY: Final = ("tests/placement/client/", "tests/placement/cluster/", "tests/placement/test_schedulemesh.py")
"""Where the tests are that share one Ray cluster, which costs ten seconds and nearly a gigabyte."""

_TOGETHER: Final = "the shared Prefect server"
_TOGETHER_ON_RAY: Final = "the shared Ray cluster"


class Spreading(LoadFileScheduling):
    """Gives each process whole files, because fixtures of a module are made once per process; the longest first."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        if file.startswith(_ON_RAY):
            return _TOGETHER_ON_RAY
        return _TOGETHER if _shares_prefect(file) else file


@cache
def _shares_prefect(file: str) -> bool:
    return bool(_ASKS_FOR_PREFECT.search((ROOT / file).read_text()))
