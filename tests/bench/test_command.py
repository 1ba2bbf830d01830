"""The command around the scenarios: choosing, listing, changing parameters, reporting."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.cli.main import main
from headgate.core.errors import InvalidInputError
from headgate_bench import command, newest_artifacts, scenario, scenario_names
from tests.bench.tiny import EASY, TINY, bench


def test_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "list", "--json"]) == 0
    listed = {one["scenario"]: one["what"] for one in json.loads(capsys.readouterr().out)}
    assert list(listed) == list(scenario_names())
    assert all(len(what) > 40 and not what.endswith(".") for what in listed.values())


def test_listing_them_imports_neither_prefect_nor_ray() -> None:
    listing = "import sys; from headgate.cli.main import main; main(['bench', 'list'])"
    heavy = "print(sorted({'polars', 'prefect', 'ray'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{listing}; {heavy}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["queu"], "did you mean 'queue'"),
        ([], "no scenario is named"),
        (["queue", "--all"], "--all runs every scenario"),
        (["queue", "--quick", "--full"], "exclude each other"),
        (["queue", "--set", "task=1"], "did you mean 'tasks'"),
        (["queue", "--set", "tasks=many"], "parameter tasks"),
        (["queue", "--set", "tasks=0"], "parameter tasks must be finite and > 0 (got 0)"),
        (["queue", "--set", "groups=8,-1"], "parameter groups must be finite and > 0 (got -1)"),
        (["queue", "--set", "closed_share=-0.1"], "parameter closed_share must be finite and >= 0"),
        (["limit", "--set", "seconds=inf"], "parameter seconds must be finite and > 0"),
        (["limit", "--set", "bar_up_s=nan"], "parameter bar_up_s must be finite"),
        (["queue", "--set", "tasks"], "--set takes name=value"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_next_step(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["bench", *arguments, "--output", str(tmp_path)]) == 2
    assert said in re.sub(r"\s+", " ", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_a_table_says_which_bars_are_met_and_which_are_missed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    changes = [option for change in (*TINY["queue"], "bar_us=0", "bar_flat=1e9") for option in ("--set", change)]
    assert main(["bench", "queue", "--output", str(tmp_path), *changes]) == 4
    shown = capsys.readouterr().out
    assert "MISSED" in shown
    assert "met" in shown
    assert "artifact:" in shown


def test_every_scenario_runs_in_a_process_of_its_own_and_one_missed_bar_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "scenario_names", lambda: ("queue",))
    changes = [option for change in (*TINY["queue"], "bar_us=0", "bar_flat=1e9") for option in ("--set", change)]
    assert main(["bench", "--all", "--output", str(tmp_path), *changes, "--json"]) == 4
    (told,) = json.loads(capfd.readouterr().out)["scenarios"]
    assert (told["scenario"], Path(told["artifact"]).parent) == ("queue", tmp_path)


@pytest.mark.long
def test_the_report_is_one_page_of_the_newest_artifacts_that_needs_nothing_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bench(capsys, tmp_path, "queue", *TINY["queue"], "bar_us=0", "bar_flat=1e9")
    bench(capsys, tmp_path, "queue", *TINY["queue"], *EASY["queue"])
    bench(capsys, tmp_path, "environments", *TINY["environments"], *EASY["environments"])
    assert main(["bench", "report", "--output", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["scenarios"] == ["environments", "queue"]
    page = Path(told["path"]).read_text()
    assert page.count("<svg") == 3
    assert all(Path(figure["path"]).read_text().startswith("<svg") for figure in told["figures"])
    assert len({figure["title"] for figure in told["figures"]}) == 3
    assert "missed" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL), "the older artifact is not shown"
    assert "P3.cycle" in page
    assert "<script" not in page
    outside = set(re.findall(r'(?:href|src)="([^"]*)"', page))
    assert all(link.startswith("#") for link in outside)
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.long
def test_a_missed_bar_stands_in_the_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, printed = bench(capsys, tmp_path, "queue", *TINY["queue"], *EASY["queue"], "bar_flat=0")
    bars = printed["bars"]
    assert main(["bench", "report", "--output", str(tmp_path)]) == 0
    assert f"{len(bars) - 2} of {len(bars)} bars met" in (tmp_path / "report.html").read_text()


def test_a_report_of_nothing_says_what_to_run_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", "report", "--output", str(tmp_path)]) == 2
    assert "headgate bench --all --quick" in re.sub(r"\s+", " ", capsys.readouterr().err)


def test_a_file_that_is_no_artifact_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(InvalidInputError, match=r"other\.json"):
        newest_artifacts(tmp_path)


def test_quick_and_full_of_a_scenario_differ_in_size_only_where_they_must() -> None:
    for name in scenario_names():
        one = scenario(name)
        assert type(one.quick) is type(one.full)
        assert one.quick != one.full
