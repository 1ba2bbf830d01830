from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobqueue.generator.site import Site, server


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """One team with one task of two instances and one server; tests add to it or replace it."""
    site = Site(tmp_path)
    site.submit("standard.alpha.json", "Alpha", 0.5, radio=0.5)
    site.add_instances("radio", 1, 2)
    site.serve(alpha=[server("alpha-1")])
    return site
