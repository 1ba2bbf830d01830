"""A running job queue for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobqueue.worker.queue_site import QueueSite, queue_site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[QueueSite]:
    with queue_site(tmp_path) as running:
        yield running
