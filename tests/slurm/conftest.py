"""Tests of SLURM need the one that `make test-slurm` starts, which asks for them by their mark."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `slurm` out unless `-m` speaks of them."""
    if "slurm" in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker("slurm")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
