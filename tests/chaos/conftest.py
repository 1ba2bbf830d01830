"""How often processes are killed: once in CI, as often as the guarantee says by `make chaos`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=1, help="kills per chaos test (make chaos: 30)")
    parser.addoption("--chaos-seed", type=int, default=0, help="seed of the random points")


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--kills"))


@pytest.fixture
def chaos_seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--chaos-seed"))
