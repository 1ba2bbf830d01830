"""The flow `elastic-report`, run in this process against a real Prefect server; its ramps are short."""

# ruff: noqa: ASYNC240 - a test has nothing else to run meanwhile

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.states import Cancelling

from blocks import ReportStore
from flows.elastic import elastic_report
from headgate.core import errors
from tests.flows.api import artifacts_of, newest_run, states_of

NAME = "elastic policies on ramp"
SHORT: dict[str, Any] = {"policies": ["predictive", "fixed"], "scale": 0.005}
ALL = ["predictive", "target", "threshold", "verl", "ray-serve", "knative", "fixed"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The worker's folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_run_publishes_a_table_a_report_figures_and_where_the_page_is(prefect: object, place: Path) -> None:
    counts = await elastic_report(**SHORT)
    assert list(counts["policies"]) == ["1 s", "30 s"]
    published = await artifacts_of((await newest_run(NAME)).id)
    rows = published["elastic-policies"]
    assert [(row["policy"], row["start"]) for row in rows] == [
        ("predictive", "1 s"), ("fixed", "1 s"), ("predictive", "30 s"), ("fixed", "30 s"),
    ]  # fmt: skip
    for row in rows:
        told = counts["policies"][row["start"]][row["policy"]]
        assert (row["cost"], row["wait p99"]) == (f"{told['cost']:.2f}x", f"{told['p99_s']:.2f} s")
        assert row["lost"] == "0"
    assert "No policy can cost less than" in published["elastic-report"]
    assert "Poisson arrivals" in published["elastic-report"]
    assert f"xdg-open {counts['places']['report.html']}" in published["elastic-report"]
    for start in ("1-s", "30-s"):
        _assert_all_figures(published, start)
    page = Path(counts["places"]["report.html"]).read_text("utf-8")
    assert page.count("<svg") >= 6
    assert "default-src 'none'" in page, "the page needs nothing else"
    document = json.loads(Path(counts["places"]["replay.json"]).read_text())
    assert [each["site"]["start_s"] for each in document] == [1.0, 30.0]


@pytest.mark.long
async def test_the_figures_of_many_policies_fit_into_an_artifact(prefect: object, place: Path) -> None:
    await elastic_report(policies=ALL, starts_s=[1.0], scale=0.05)
    published = await artifacts_of((await newest_run(NAME)).id)
    _assert_all_figures(published, "1-s")


@pytest.mark.long
async def test_a_trace_is_replayed_with_measured_times_and_a_public_store_gives_a_link(
    prefect: object, place: Path
) -> None:
    name = "elastic-pages"
    await ReportStore(url=str(place / "pages"), public_url="https://example.org/pages").asave(name, overwrite=True)
    lines = [f'{{"timestamp": {n * 200}, "input_length": 300, "output_length": 50}}' for n in range(300)]
    (place / "chat.jsonl").write_text("\n".join(lines))
    (place / "times.csv").write_text(
        "model,hardware,tensor_parallel,prompt_size,batch_size,token_size,prompt_time,token_time\n"
        "tiny,cpu,1,128,1,64,20,10\ntiny,cpu,1,512,1,64,60,10\ntiny,cpu,1,512,8,64,60,20\n"
    )
    given = {"service_times": "times.csv", "model": "tiny", "hardware": "cpu", "gpus": 1, "reports": name}
    counts = await elastic_report("chat.jsonl", policies=["predictive"], starts_s=[1.0], copies=2, **given)
    assert (counts["load"], counts["requests"]) == ("chat x2", 600)
    published = await artifacts_of((await newest_run("elastic policies on chat.jsonl")).id)
    assert counts["links"]["report.html"] in published["elastic-page"]
    assert "tiny on 1 x cpu" in published["elastic-report"]
    assert "more than there are" not in published["elastic-report"]
    await elastic_report("chat.jsonl", policies=["fixed"], starts_s=[1.0], copies=50, max_workers=1, **given)
    published = await artifacts_of((await newest_run("elastic policies on chat.jsonl")).id)
    assert "workers, more than there are: no policy can keep waiting short." in published["elastic-report"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policies": ["predictiv"]}, "there is no policy 'predictiv' to replay; did you mean 'predictive'"),
        ({"reports": "nowhere"}, "headgate-report-store/nowhere"),
        *(
            pytest.param(given, said, marks=pytest.mark.long)
            for given, said in (
                ({"frontiers": ["nobody"]}, "there is no policy 'nobody'"),
                ({"starts_s": []}, "at least one start time is needed"),
                ({"trace": "absent.csv"}, "there is no trace 'absent.csv'"),
                ({"trace": "flow.py"}, "the table of service times is missing"),
                ({"awake": 20}, "awake workers must be between 1 and the workers of the site .got 20 of 16"),
            )
        ),
    ],
)
async def test_what_cannot_be_used_is_said_before_anything_is_replayed(
    prefect: object, place: Path, given: dict[str, Any], said: str
) -> None:
    (place / "flow.py").touch()
    with pytest.raises(errors.HeadgateError, match=said):
        await elastic_report(**{**SHORT, **given})


async def test_a_cancelled_run_ends_after_the_replay_at_work(
    prefect: object, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.orchestration.run_state._HEED_EVERY_S", 0.05)
    endless = ["predictive", "target", "fixed"]
    run = asyncio.create_task(
        elastic_report(policies=endless, frontiers=endless, starts_s=[1.0] * 50, scale=0.1, return_state=True)
    )
    while not (found := [each for each in [await _maybe_newest()] if each is not None and each.state.is_running()]):
        assert not run.done(), run.result()
        await asyncio.sleep(0.05)
    async with get_client() as client:
        await client.set_flow_run_state(found[0].id, Cancelling(), force=True)
    assert (await run).is_cancelled()
    assert (await states_of(found[0].id))[-1].name == "Cancelled"


def _assert_all_figures(published: dict[str, Any], start: str) -> None:
    for figure in ("workers", "waits", "cost"):
        assert "data:image/svg+xml;base64," in published[f"elastic-{figure}-{start}"], figure


async def _maybe_newest() -> Any:
    try:
        run = await newest_run(NAME)
    except IndexError:
        return None
    return run
