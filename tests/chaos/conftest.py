"""How often processes are killed: once in CI, as often as the guarantee says by `make chaos`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.campaign_process import end_all


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=1, help="kills per chaos test (make chaos: 30)")
    parser.addoption("--chaos-seed", type=int, default=0, help="seed of the random points")


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--kills"))


@pytest.fixture
def chaos_seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--chaos-seed"))


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    yield
    end_all()
