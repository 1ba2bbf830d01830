"""Evaluation, report and compaction, run in this process against a real server."""

# ruff: noqa: ASYNC240 - a test has nothing else to run meanwhile

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.events.filters import EventFilter, EventNameFilter

from blocks import ReportStore, SampleStore
from flows.comparison import leaderboard
from flows.evaluation import evaluate, rank
from flows.upkeep import compact_samples, report
from headgate.core import errors
from headgate.orchestration import phases
from headgate.sampling import FileRoster, Roster
from tests.flows.api import artifacts_of, newest_run, phases_of
from tests.flows.places import Places
from tests.telemetry.trace_format import read_trace, slices


async def test_an_evaluation_runs_each_cell_once_and_goes_on_with_what_is_new(
    prefect: object, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(instances: int) -> int:
        counts = await evaluate(instances, environments=["affine:sat"], settings=places.settings())
        return counts["samples"]

    with monkeypatch.context() as counting:
        loads: list[object] = []
        load = FileRoster.load

        async def counted(source: FileRoster) -> Roster:
            loads.append(source)
            return await load(source)

        counting.setattr(FileRoster, "load", counted)
        assert await run(3) == 2 * 3
        assert len(loads) == 1
    begun = await newest_run("evaluate evaluation: 3 instances")
    assert await _eventually(phases_of, begun.id, 4) == [
        "load roster",
        "sample evaluate-evaluation",
        "drain",
        "publish",
    ]
    assert await run(3) == 0
    assert await run(5) == 2 * 2
    stored = await places.stored()
    assert sorted(stored.filter(stored["model"] == "solver@main")["sequence"]) == [0, 1, 2, 3, 4]


async def test_a_ranking_ends_when_every_two_models_are_ranked(prefect: object, places: Places) -> None:
    told = await rank(60, 0.3, environments=["affine:sat"], campaign="ranked", settings=places.settings())
    (pair,) = told["ranking"]["pairs"]
    assert pair["verdict"] in {"not worse", "not better"}
    assert told["samples"] < 2 * 60
    assert told["open_tasks"] == 0


async def _eventually(asked: Callable[[UUID], Awaitable[list[str]]], run: UUID, count: int) -> list[str]:
    """Return what the server says once it knows `count` of them: it learns of tasks by events."""
    async with asyncio.timeout(30):
        while len(found := await asked(run)) < count:  # noqa: ASYNC110 - a server is asked
            await asyncio.sleep(0.1)
    return found


async def test_an_evaluation_can_choose_models(prefect: object, places: Places) -> None:
    counts = await evaluate(2, environments=["affine:sat"], models=["solver"], settings=places.settings())
    assert counts["samples"] == 2
    assert set((await places.stored())["model"]) == {"solver@main"}
    with pytest.raises(errors.InvalidRosterError, match="no model 'sovler'"):
        await evaluate(2, environments=["affine:sat"], models=["sovler"], settings=places.settings())


async def test_an_evaluation_whose_samples_keep_failing_stops_early_and_fails(prefect: object, places: Places) -> None:
    roster = places.roster.read_text()
    places.roster.write_text(roster.replace("baseline-", "no-such-model-"))
    try:
        with pytest.raises(
            errors.SamplesKeepFailingError, match=r"stopped early: 10 of the last 10 samples failed, 2 of 2 models"
        ):
            await evaluate(40, environments=["affine:sat"], campaign="hopeless", settings=places.settings())
    finally:
        places.roster.write_text(roster)
    run = await newest_run("evaluate hopeless: 40 instances")
    assert run.state is not None
    assert run.state.is_failed()


async def _saved(places: Places, name: str, public_url: str = "") -> str:
    await SampleStore(url=str(places.folder / "samples")).asave(name, overwrite=True)
    await ReportStore(url=str(places.folder / "reports"), public_url=public_url).asave(name, overwrite=True)
    return name


async def test_an_evaluation_keeps_its_trace_in_a_report_store_and_links_to_it(prefect: object, places: Places) -> None:
    name = await _saved(places, "traces", "https://reports.example.com")
    await evaluate(2, environments=["affine:sat"], reports=name, campaign="traced", settings=places.settings())
    published = await artifacts_of((await newest_run("evaluate traced: 2 instances")).id)
    assert "https://reports.example.com/trace-evaluate-traced-" in published["trace-evaluate-traced"]
    (trace,) = (places.folder / "reports").glob("*/trace.json.gz")
    assert len(slices(read_trace(trace), "affine:sat")) == 4


async def test_without_a_public_address_the_trace_is_named_by_its_place(prefect: object, places: Places) -> None:
    name = await _saved(places, "traces-here")
    await evaluate(1, environments=["affine:sat"], reports=name, campaign="here", settings=places.settings())
    published = await artifacts_of((await newest_run("evaluate here: 1 instances")).id)
    assert str(places.folder / "reports") in published["trace-evaluate-here"]


async def test_where_the_server_lists_assets_the_store_is_one(
    prefect: object, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "shows_assets", lambda: True)
    await evaluate(1, environments=["affine:sat"], campaign="assets", settings=places.settings())
    wanted = EventFilter(event=EventNameFilter(name=["prefect.asset.materialization.succeeded"]))
    async with asyncio.timeout(30), get_client() as client:
        while not (events := (await client._client.post("/events/filter", json=_asked(wanted))).json()["events"]):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    (told,) = events
    assert told["resource"]["prefect.resource.id"] == phases.asset_key(str(places.folder / "samples"))


def _asked(wanted: EventFilter) -> dict[str, Any]:
    return {"filter": wanted.model_dump(mode="json")}


async def test_a_report_is_a_page_with_artifacts_that_lead_to_it(prefect: object, places: Places) -> None:
    await evaluate(3, environments=["affine:sat"], settings=places.settings())
    name = await _saved(places, "with-link", "https://reports.example.com")
    made = await report(hours=2, store=name, reports=name, title="Monday")
    page = Path(made["places"]["report.html"])
    assert made["samples"] == 6
    assert "Monday" in page.read_text("utf-8")
    published = await artifacts_of((await newest_run("report on 2 hours")).id)
    assert "solver@main" in published["report"]
    assert "data:image/svg+xml;base64," in published["report-figures"]
    assert made["links"]["report.html"] in published["report-page"]
    assert {row["model"] for row in published["report-scores"]} == {"solver@main", "random@main"}


async def test_a_leaderboard_publishes_a_table_markdown_a_figure_and_the_way_to_its_page(
    prefect: object, places: Places
) -> None:
    for campaign in ("once", "twice"):
        await evaluate(12, environments=["affine:sat-hard"], campaign=campaign, settings=places.settings())
    name = await _saved(places, "boards", "https://reports.example.com")
    made = await leaderboard(ks=[2], store=name, reports=name, title="Who leads")
    assert {model: told["rank"] for model, told in made["models"].items()} == {"solver@main": 1, "random@main": 2}
    page = Path(made["places"]["leaderboard.html"])
    assert "Who leads" in page.read_text("utf-8")
    assert (page.parent / "leaderboard.json").exists()
    published = await artifacts_of((await newest_run("Who leads")).id)
    rows = {row["model"]: row for row in published["leaderboard-models"]}
    assert (rows["solver@main"]["tasks"], rows["solver@main"]["samples"]) == ("12", "24")
    assert rows["solver@main"]["pass@2"].startswith("1.000")
    assert "Differences from the reference" in published["leaderboard"]
    assert "data:image/svg+xml;base64," in published["leaderboard-figure"]
    assert made["links"]["leaderboard.html"] in published["leaderboard-page"]


@pytest.mark.long
async def test_without_a_public_address_the_reader_learns_how_to_open_the_page(prefect: object, places: Places) -> None:
    await evaluate(1, environments=["affine:sat"], settings=places.settings())
    name = await _saved(places, "without-link")
    made = await report(hours=3, store=name, reports=name)
    published = await artifacts_of((await newest_run("report on 3 hours")).id)
    assert f"xdg-open {made['places']['report.html']}" in published["report-page"]


async def test_a_report_on_nothing_says_so(prefect: object, places: Places) -> None:
    name = await _saved(places, "empty")
    assert (await report(store=name, reports=name))["samples"] == 0


@pytest.mark.long
async def test_compaction_merges_what_many_runs_stored(prefect: object, places: Places) -> None:
    for instances in range(1, 10):
        await evaluate(
            instances, environments=["affine:sat"], models=["solver"], settings=places.settings(status_interval_s=60)
        )
    name = await _saved(places, "crowded")
    done = await compact_samples(store=name)
    assert (done["parts_merged"], done["parts_made"]) == (9, 1)
    assert sorted((await places.stored())["sequence"]) == list(range(9))
    published = await artifacts_of((await newest_run("compact samples")).id)
    assert {"what": "parts merged", "count": "9"} in published["compaction"]
