"""`headgate elastic replay`: tables, JSON, files, and a sentence for what cannot be replayed."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.conftest import Command

RAMP = ("elastic", "replay", "ramp", "--scale", "0.02", "--start", "1", "--policy", "predictive")
TIMES = "model,hardware,tensor_parallel,prompt_size,batch_size,prompt_time,token_time"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    rows = [f"2023-11-16 18:17:{second:02d}.500,{100 + second},20" for second in range(60)]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(("TIMESTAMP,ContextTokens,GeneratedTokens", *rows)))
    return path


@pytest.fixture
def times(tmp_path: Path) -> Path:
    rows = [f"llama2-70b,h100-80gb,8,{size},{batch},{size / 4},50" for size in (128, 512) for batch in (1, 8)]
    path = tmp_path / "times.csv"
    path.write_text("\n".join((TIMES, *rows)))
    return path


def test_policies_are_compared_on_one_load(headgate: Command) -> None:
    said = headgate(*RAMP, "--policy", "verl", "--frontier", "fixed-need")
    assert said.status == 0
    for text in ("ramp: ", "seed 0", "1 s to start", "predictive", "verl", "cost", "wait p99", "No policy can cost"):
        assert text in said.out
    assert "fixed-need by workers: " in said.out
    assert "knative" not in said.out


def test_the_same_replay_gives_the_same_figures(headgate: Command) -> None:
    first, second = (headgate(*RAMP, "--seed", "3", "--json").document for _ in range(2))
    for document in (first, second):
        for each in document["comparisons"][0]["policies"]:
            each.pop("took_s")
    assert first == second
    assert first["comparisons"][0]["policies"][0]["dropped"] == 0


def test_each_start_time_is_a_comparison_of_its_own(headgate: Command) -> None:
    document = headgate(*RAMP, "--start", "5", "--max-workers", "4", "--slots", "4", "--json").document
    sites = [each["site"] for each in document["comparisons"]]
    assert [(site["start_s"], site["workers"]) for site in sites] == [(1, 4), (5, 4)]
    assert document["comparisons"][0]["slots"] == 4


def test_the_settings_of_a_pools_file_are_those_of_our_policies(headgate: Command, tmp_path: Path) -> None:
    settings = {"min_workers": 6, "requests_per_worker_capacity": 4, "max_workers": 6}
    (tmp_path / "pool.yaml").write_text(json.dumps({"pool": {"engines": []}, "elastic_config": settings}))
    bare = headgate(*RAMP, "--slots", "4", "--max-workers", "6", "--json").document["comparisons"][0]
    ours = headgate(*RAMP, "--settings", "pool.yaml", "--json").document["comparisons"][0]
    assert (ours["slots"], ours["site"]["workers"]) == (4, 6)
    assert ours["policies"][0]["cost"] > 1.05 * bare["policies"][0]["cost"], "workers that are always awake cost more"


def test_a_trace_is_replayed_with_measured_service_times(headgate: Command, trace: Path, times: Path) -> None:
    line = ("elastic", "replay", str(trace), "--service-times", str(times), "--start", "1", "--policy", "target")
    document = headgate(*line, "--json").document["comparisons"][0]
    assert document["calls"] == 60
    assert any("llama2-70b on 8 x h100-80gb" in note for note in document["notes"])
    assert document["site"]["awake"] == 2, "as many as the first minute fills, and one more"
    assert headgate(*line, "--copies", "3", "--json").document["comparisons"][0]["calls"] == 180


@pytest.mark.long
def test_a_page_figures_and_json_are_written(headgate: Command, tmp_path: Path) -> None:
    said = headgate(*RAMP, "--output", "out")
    assert said.status == 0
    page = (tmp_path / "out" / "elastic-replay.html").read_text()
    assert "<svg" in page
    assert str(tmp_path / "out" / "elastic-replay.html") in said.out
    assert ET.fromstring((tmp_path / "out" / "elastic-1s-waits.svg").read_text()).tag.endswith("svg")
    assert json.loads((tmp_path / "out" / "elastic-replay.json").read_text())[0]["load"] == "ramp"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("nowhere.csv",), "there is no trace 'nowhere.csv'"),
        (("trace.csv",), "the table of service times is missing"),
        (("--policy", "predictiv"), "did you mean 'predictive'?"),
        (("--start", "-1"), "a start time must be a number of seconds >= 0 (got -1)"),
        (("--max-workers", "0"), "max_workers must be >= 1 (got 0)"),
        (("--awake", "17"), "awake workers must be between 1 and the workers of the site (got 17 of 16)"),
        (("--slots", "0"), "slots of a worker must be >= 1 (got 0)"),
        (("--scale", "inf"), "scale must be above 0 and at most 168 (got inf)"),
        (("--settings", "nowhere.yaml"), "nowhere.yaml cannot be read: No such file or directory"),
        (("--settings", "list.yaml"), "holds no settings of an elastic pool (got list)"),
        (("--settings", "wrong.yaml"), "there is no setting wait_prise; did you mean 'wait_price'?"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_replayed_is_said(
    headgate: Command, trace: Path, tmp_path: Path, line: tuple[str, ...], says: str
) -> None:
    assert trace.exists()
    (tmp_path / "list.yaml").write_text("[1]")
    (tmp_path / "wrong.yaml").write_text("wait_prise: 1")
    said = headgate("elastic", "replay", *line)
    assert said.status == 2
    assert says in " ".join(said.err.split())


def test_a_folder_that_cannot_be_written_is_said(headgate: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = headgate(*RAMP, "--output", "file")
    assert said.status == 2
    assert "the folder file cannot be written to" in said.err
