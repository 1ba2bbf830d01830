"""An open desk for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobqueue.desk.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.desk.open()
    rig.turn()  # the first group forgets old replies, which is a commit
    yield rig
    rig.desk.close()
