"""A machine whose clock disagrees with the Prefect API's samples nothing and says so."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from headgate.core.errors import ClockDisagreesError
from headgate.orchestration.inputs import SamplingOrder
from headgate.orchestration.run_state import require_server_clock
from headgate.orchestration.sampling_run import run_sampling


@pytest.mark.usefixtures("prefect")
async def test_a_run_by_a_clock_ahead_of_the_api_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    await require_server_clock()
    ahead = SimpleNamespace(time=lambda: time.time() + 2 * 86_400.0)
    monkeypatch.setattr("headgate.orchestration.run_state.time", ahead)
    with pytest.raises(ClockDisagreesError, match="the Prefect API says"):
        await run_sampling(SamplingOrder(environments=("affine:sat",)), "sat", duration_s=1.0)


async def test_an_api_that_does_not_answer_is_nobody_s_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    await require_server_clock()
