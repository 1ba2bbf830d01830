"""The benchmark flow, run in this process against a real server; its scenarios are quick ones."""

# ruff: noqa: ASYNC240 - a test has nothing else to run meanwhile

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.states import Cancelling

from blocks import ReportStore
from flows.benchmark import benchmark
from headgate.core import errors
from headgate_bench.idle.baseline import committed_baseline
from tests.flows.api import artifacts_of, newest_run, states_of

pytestmark = pytest.mark.slow
NAME = "benchmark, quick"
TINY = ["cases=row-scale/rows-64", "bar_wall=0", "bar_cpu_us=1e9"]
"""One bar of four is missed."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The worker's folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_run_publishes_bars_figures_and_a_page_with_everything(prefect: object, place: Path) -> None:
    await ReportStore(url=str(place / "reports")).asave("benchmarks", overwrite=True)
    done = await benchmark(["idle"], changes={"idle": TINY}, reports="benchmarks", fail_on_missed=False)
    assert (done["scenarios"], done["bars"], done["missed"]) == (["idle"], 4, ["P11.wall"])
    page = Path(done["places"]["report.html"])
    assert "3 of 4 bars met" in page.read_text("utf-8")
    artifact = json.loads(Path(done["places"]["idle.json"]).read_text())
    published = await artifacts_of((await newest_run(NAME)).id)
    assert {row["id"]: row["met"] for row in published["benchmark-bars"]} == {
        bar["id"]: "met" if bar["met"] else "missed" for bar in artifact["bars"]
    }
    assert published["benchmark-bars"][0]["met"] == "missed", "what is missed stands first"
    assert "3 of 4 bars met in 1 scenarios; missed: P11.wall" in published["benchmark"]
    assert f"xdg-open {page}" in published["benchmark"]
    assert "data:image/svg+xml;base64," in published["benchmark-figures"]
    assert published["benchmark-progress"] == 100.0
    assert "Idle suite" in Path(done["places"]["idle-report.html"]).read_text("utf-8")
    assert list((place / ".headgate/bench").iterdir()) == [], "working files are gone"


@pytest.mark.long
async def test_a_missed_bar_fails_the_run_unless_it_is_told_not_to(prefect: object, place: Path) -> None:
    baseline = committed_baseline("quick")
    baseline["cases"]["row-scale/rows-64"]["llm_wait_utilization_ratio"] = 2.0
    (place / "better.json").write_text(json.dumps(baseline))
    state = await benchmark(["idle"], changes={"idle": TINY}, baseline="better.json", return_state=True)
    assert state.is_failed()
    assert state.message == "2 of 4 bars met in 1 scenarios; missed: P11.wall, P11.checks"
    assert list((place / ".headgate/reports").glob("*/report.html")), "its figures are published all the same"


@pytest.mark.long
async def test_a_scenario_that_cannot_run_fails_the_run_and_the_others_are_published(
    prefect: object, place: Path
) -> None:
    changes = {"environments": ["episode=1"], "idle": TINY}
    state = await benchmark(["environments", "idle"], changes=changes, fail_on_missed=False, return_state=True)
    assert state.is_failed()
    assert "failed: environments" in state.message
    published = await artifacts_of((await newest_run(NAME)).id)
    assert "did you mean 'episodes'" in published["benchmark"]
    assert {row["scenario"] for row in published["benchmark-bars"]} == {"idle"}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"scenarios": ["queu"]}, "there is no benchmark 'queu'"),
        pytest.param({"changes": {"queu": ["tasks=1"]}}, "there is no benchmark 'queu'", marks=pytest.mark.long),
        pytest.param(
            {"scenarios": ["idle"], "baseline": "absent.json"},
            "baseline absent.json is not a file on this worker",
            marks=pytest.mark.long,
        ),
        ({"reports": "nowhere"}, "headgate-report-store/nowhere"),
    ],
)
async def test_what_cannot_be_used_is_said_before_anything_is_measured(
    prefect: object, place: Path, parameters: dict[str, object], said: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=said):
        await benchmark(**parameters)
    assert (await newest_run(NAME)).state.is_failed()


@pytest.mark.long
async def test_a_cancelled_run_ends_its_scenario_and_publishes_what_was_done(prefect: object, place: Path) -> None:
    endless = ["models=4", "environments=2", "cap=8", "mean_s=0.05", "window_s=3600"]
    changes = {"idle": TINY, "utilisation": endless}
    running = asyncio.create_task(
        benchmark(["idle", "utilisation"], changes=changes, fail_on_missed=False, return_state=True)
    )
    while not list(place.rglob("utilisation.log")):
        assert not running.done(), running.result()
        await asyncio.sleep(0.1)
    run = await newest_run(NAME)
    async with get_client() as client:
        await client.set_flow_run_state(run.id, Cancelling(), force=True)
    await asyncio.wait([running], timeout=40)
    assert (await states_of(run.id))[-1].name == "Cancelled"
    published = await artifacts_of(run.id)
    assert "not run: utilisation" in published["benchmark"]
    assert {row["scenario"] for row in published["benchmark-bars"]} == {"idle"}
    assert list((place / ".headgate/bench").iterdir()) == []
