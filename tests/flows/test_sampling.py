"""The sampling flows, run in this process against a real server."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.states import Cancelling, Suspended

from blocks import ModelEndpoint, ModelRoster, RosterEntry, SampleStore
from flows.sampling import keep_sampling, sample_environment
from headgate.core import errors
from tests.flows.api import artifacts_of, newest_run, states_of
from tests.flows.places import Places, window


async def test_a_window_samples_every_model_stores_what_it_counts_and_publishes_scores_and_progress(
    prefect: object, places: Places
) -> None:
    counts = await sample_environment(**window(places))
    stored = await places.stored()
    assert counts["samples"] == counts["stored"] == stored.height == await places.assert_nothing_lost()
    assert set(stored["model"]) == {"solver@main", "random@main"}
    assert set(stored["environment"]) == {"affine:sat"}
    run = await newest_run("affine:sat for 2 s")
    published = await artifacts_of(run.id)
    assert sum(int(row["scored"]) for row in published["scores-affine-sat"]) == counts["scored"]
    solver = next(row for row in published["scores-affine-sat"] if row["model"] == "solver@main")
    assert solver["mean"] == "1.000"
    assert published["progress-affine-sat"] == 100.0
    assert run.state.name == "Completed"
    assert f"{counts['scored']} of {counts['samples']} samples scored" in run.state.message


async def test_a_second_window_goes_on_where_the_first_one_was(prefect: object, places: Places) -> None:
    first = await sample_environment(**window(places))
    second = await sample_environment(**window(places))
    assert (await places.stored()).height == first["samples"] + second["samples"] == await places.assert_nothing_lost()


@pytest.mark.parametrize(
    ("parameters", "error", "said"),
    [
        ({"environment": "affine:sta"}, errors.UnknownEnvironmentError, "did you mean 'affine:sat'"),
        ({"settings": {"drain_timeouts": 1}}, errors.InvalidSettingError, "did you mean 'drain_timeout_s'"),
        ({"settings": {"num_evaluation_workers": 3}, "workers": 4}, errors.InvalidSettingError, "given twice"),
        ({"store": "nowhere"}, errors.InvalidInputError, "headgate-sample-store/nowhere"),
        ({"roster": "nowhere"}, errors.InvalidRosterError, "headgate-model-roster/nowhere"),
    ],
)
async def test_what_cannot_be_used_is_said_before_anything_starts(
    prefect: object, places: Places, parameters: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        await sample_environment(**(window(places) | parameters))
    name = parameters.get("environment", "affine:sat")
    run = await newest_run(f"{name} for 2 s")
    assert run.state.is_failed()
    assert said in run.state.message
    assert not (places.folder / "samples/samples").exists()


async def test_a_parameter_out_of_its_bounds_is_refused_by_prefect_itself(prefect: object, places: Places) -> None:
    with pytest.raises(Exception, match="greater than 0"):
        await sample_environment(**window(places, duration_s=-1))


async def test_roster_and_store_can_be_blocks(prefect: object, places: Places, baselines: str, tmp_path: Path) -> None:
    name = f"b-{uuid.uuid4().hex[:8]}"
    await ModelEndpoint(base_url=baselines, options={"headgate_task_header": True}).asave(name)
    await ModelRoster(
        endpoint=await ModelEndpoint.aload(name), models=[RosterEntry(name="g", served_name="baseline-greedy")]
    ).asave(name)
    await SampleStore(url=str(tmp_path / "elsewhere")).asave(name)
    settings = {k: v for k, v in places.settings().items() if k not in {"roster", "store"}}
    counts = await sample_environment(**window(places, settings=settings, roster=name, store=name))
    assert counts["samples"] > 0
    assert len(list((tmp_path / "elsewhere").rglob("*.parquet"))) > 0


@pytest.fixture
def heedful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs ask for their state more often than those of users, who do not wait for it."""
    monkeypatch.setattr("headgate.orchestration.artifacts.PUBLISH_EVERY_S", 0.3)


async def _keep_until(places: Places, change: Any) -> Any:
    """Run `keep_sampling`, change the state of its run through the API once it has sampled, and return how it ended."""
    campaign = f"c-{uuid.uuid4().hex[:8]}"
    running = asyncio.create_task(
        keep_sampling(
            environments=["affine:sat"],
            campaign=campaign,
            rate_per_day=100_000,
            settings=places.settings(),
            return_state=True,
        )
    )
    while not list((places.folder / "samples").rglob("samples/**/*.parquet")):
        assert not running.done(), running.result()
        await asyncio.sleep(0.1)
    run = await newest_run(f"keep sampling {campaign}")
    async with get_client() as client:
        await client.set_flow_run_state(run.id, change, force=True)
    await asyncio.wait([running], timeout=40)
    assert running.done()
    assert await places.assert_nothing_lost(campaign) > 0
    return running, run


@pytest.mark.usefixtures("heedful")
async def test_a_run_without_an_end_drains_when_it_is_cancelled(prefect: object, places: Places) -> None:
    _, run = await _keep_until(places, Cancelling())
    states = await states_of(run.id)
    assert [state.name for state in states][-2:] == ["Cancelling", "Cancelled"]
    assert "drained" in states[-1].message


@pytest.mark.usefixtures("heedful")
async def test_a_run_that_is_suspended_drains_and_stays_suspended(prefect: object, places: Places) -> None:
    _, run = await _keep_until(places, Suspended(timeout_seconds=3600))
    assert (await states_of(run.id))[-1].name == "Suspended"
