"""An open writer for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobqueue.writer.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.writer.open()
    rig.turn()  # the first group forgets old replies, which is a commit
    yield rig
    rig.writer.close()
