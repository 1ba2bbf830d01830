"""`headgate run` against real baselines, and the commands that read what it stored."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import shutil
import sqlite3
import time
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from headgate.cli import main
from headgate.cli.run import _short_of_tasks
from headgate.config import Settings
from headgate.core import Sample
from headgate.core.errors import StoreError
from headgate.environments import Environment, Episode, environment
from headgate.reports import missing_lines
from headgate.storage import Journal, LimitKey, LimitReport, Opening, open_store
from tests.cli.conftest import Command


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory, endpoint: str) -> tuple[Path, dict[str, object]]:
    """A folder in which two baselines were evaluated, and what the command said of it."""
    folder, said = tmp_path_factory.mktemp("evaluated"), io.StringIO()
    entries = "\n".join(
        f"  - {{name: {kind}, base_url: '{endpoint}', model: baseline-{kind}, options: {{headgate_task_header: true}}}}"
        for kind in ("random", "solver")
    )
    (folder / "roster.yaml").write_text(f"models:\n{entries}\n")
    price = "{model: baseline-solver, input: 0.5, output: 2.0}"
    (folder / "prices.yaml").write_text(f"date: 2026-01-31\nsource: a list\nprices:\n  - {price}\n")
    given = ("--roster", "roster.yaml", "--prices", "prices.yaml", "-e", "affine:sat-hard")
    with contextlib.chdir(folder), contextlib.redirect_stdout(said):
        assert main(["run", *given, "--instances", "6", "--json"]) == 0
    logging.getLogger("headgate").handlers.clear()
    return folder, json.loads(said.getvalue())


@pytest.fixture
def sampled(headgate: Command, tmp_path: Path, evaluated: tuple[Path, dict[str, object]]) -> dict[str, object]:
    """A store in the working folder with a small evaluation of two baselines in it."""
    folder, document = evaluated
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return document


def test_run_prints_one_document_of_what_it_did(sampled) -> None:
    assert (sampled["samples"], sampled["stored"], sampled["spooled"]) == (12, 12, 0)
    assert sampled["stopped_by"] == "everything is done"
    assert sampled["status"]["state"] == "stopped"


@pytest.mark.parametrize(
    "asked",
    [
        ("run", "--roster", "baselines", "-e", "affine:sat-hard", "--instances", "1"),
        ("environments", "try", "affine:sat-hard"),
    ],
    ids=["run", "try"],
)
def test_what_an_environment_prints_is_beside_the_document(
    headgate: Command, asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(environment("affine:sat-hard"))
    opened = kind.open

    async def printing(self: Environment, index: int, seed: int) -> Episode:
        print("debug of an environment")
        return await opened(self, index, seed)

    monkeypatch.setattr(kind, "open", printing)
    said = headgate(*asked, "--json")
    assert said.status == 0
    assert json.loads(said.out)
    assert "debug of an environment" in said.err


def test_rank_goes_on_from_what_is_stored_until_every_two_models_are_ranked(
    headgate: Command, sampled: dict[str, object]
) -> None:
    ask = ("rank", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "50", "--indifference", "0.2")
    said = headgate(*ask, "--json")
    assert said.status == 0, said.err
    assert said.document["samples"] < 2 * 50 - 12
    (pair,) = said.document["ranking"]["pairs"]
    assert pair["verdict"] in {"not worse", "not better"}
    again = headgate(*ask)
    assert "1 of 1 pairs of models are ranked to within 0.2" in again.out
    assert "solver@main comes before random@main" in again.out
    assert "in the order are ranked to within 0.2" in " ".join(again.out.split()), "as this command was told"
    assert headgate("invalidate", "--model", "random", "--reason", "its endpoint was another one's").status == 0
    after = headgate(*ask, "--json").document
    assert after["ranking"]["pairs"][0]["verdict"] == pair["verdict"]
    assert 0 < after["samples"] < 50 + 20, "the invalidated tasks are taken again, and not all others"


def test_a_run_in_another_environment_shows_the_scores_there(headgate: Command, sampled: dict[str, object]) -> None:
    said = headgate("run", "--roster", "roster.yaml", "-e", "affine:sat", "--instances", "2")
    assert said.status == 0, said.err
    assert said.out.count("1 of 1") >= 2, "environments of each model"
    assert "sat-hard" not in said.out


def test_a_run_into_another_store_says_that_its_journal_gives_no_task_again(
    headgate: Command, sampled: dict[str, object]
) -> None:
    ask = ("run", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "6", "--store", "other")
    said = headgate(*ask)
    assert said.status == 4, "no sample of it has a score"
    words = " ".join(said.out.split())
    assert "not taken: 12 tasks that the journal .headgate/journal has assigned before" in words
    assert "for which the store other has no sample" in words


def test_tasks_that_wait_for_another_model_are_no_other_run(
    headgate: Command, sampled: dict[str, object], tmp_path: Path
) -> None:
    with contextlib.closing(Journal(tmp_path / ".headgate" / "journal", "main")) as other:
        other.open([Opening("gone@main", "affine:sat-hard", time.time(), 0.0, 1_000_000, sequence=0)])
    ask = ("run", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "6", "--store", "other")
    words = " ".join(headgate(*ask).out.split())
    assert "1 task open (nothing is left to take here)" in words
    assert "not taken: 12 tasks that the journal .headgate/journal has assigned before" in words
    assert "another run" not in words


def test_samples_that_no_store_takes_are_not_called_unscored(headgate: Command, sampled: dict[str, object]) -> None:
    ask = ("run", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "2", "--store", "/proc/none")
    said = headgate(*ask, "--journal", "fresh")
    words = " ".join(said.out.split())
    assert "No stored sample has a score." in words
    assert "not yet in the store /proc/none: 4 samples in the journal fresh; the next run" in words


def test_a_run_whose_samples_the_store_does_not_take_is_not_done_whatever_it_has_of_earlier_ones(
    headgate: Command, sampled: dict[str, object]
) -> None:
    def full(*_: object) -> None:
        raise StoreError("no space is left there")

    ask = ("run", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headgate.storage.store.put_batch", full)
        said = headgate(*ask)
    assert "not yet in the store" in said.out
    assert "4 spooled" in said.out
    assert said.status == 4
    done = headgate(*ask)
    assert "4 stored" in done.out
    assert done.status == 0


def test_tasks_that_another_run_has_in_hand_are_not_called_done(
    headgate: Command, sampled: dict[str, object], tmp_path: Path
) -> None:
    with contextlib.closing(Journal(tmp_path / ".headgate" / "journal", "main")) as other:
        other.open([Opening("solver@main", "affine:sat-hard", time.time(), 0.0, 1_000_000, sequence=6)])
        said = headgate("run", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "7")
    words = " ".join(said.out.split())
    assert "1 sample, 1 stored" in words
    assert "1 task open (nothing is left to take here)" in words
    assert "not taken: 1 task that the journal .headgate/journal has given to another run" in words


@pytest.mark.parametrize("indifference", ["0", "1", "nan"])
def test_rank_refuses_an_indifference_that_means_nothing(headgate: Command, roster: Path, indifference: str) -> None:
    said = headgate("rank", "--roster", str(roster), "--instances=5", f"--indifference={indifference}")
    assert said.status == 2
    assert f"--indifference must be above 0 and below 1 (got {indifference})" in said.err


def test_rank_with_one_model_alone_does_not_begin(headgate: Command, tmp_path: Path, endpoint: str) -> None:
    entry = f"{{name: alone, base_url: '{endpoint}', model: baseline-solver}}"
    (tmp_path / "roster.yaml").write_text(f"models:\n  - {entry}\n")
    said = headgate("rank", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "5")
    assert said.status == 2
    assert "a ranking needs two models or more (got 1)" in said.err


def test_a_run_whose_samples_keep_failing_stops_early_with_a_status_of_its_own(
    headgate: Command, tmp_path: Path, endpoint: str
) -> None:
    entry = f"{{name: nobody, base_url: '{endpoint}', model: no-such-model}}"
    (tmp_path / "roster.yaml").write_text(f"models:\n  - {entry}\n")
    said = headgate("run", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "40", "--json")
    assert said.status == 4
    assert said.document["stopped_early"] is True
    assert "of the last 10 samples failed, 1 of 1 models keep failing" in said.document["stopped_by"]
    assert said.document["samples"] < 40
    assert said.document["samples"] + said.document["open_tasks"] == 40


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        (("run", "-e", "affine:sat-hard"), "must be greater than or equal to 1 (got"),
        (("judge", "--judge-model", "j", "--judge-url", "http://127.0.0.1:9/v1"), "must be >= 1 (got"),
    ],
)
@pytest.mark.parametrize("instances", ["0", "-3"])
def test_a_matrix_of_no_instances_is_refused(
    headgate: Command, roster: Path, tmp_path: Path, command: tuple[str, ...], rule: str, instances: str
) -> None:
    said = headgate(*command, "--roster", str(roster), f"--instances={instances}")
    assert said.status == 2
    assert "instances" in said.err
    assert f"{rule} {instances}" in said.err
    assert not (tmp_path / ".headgate" / "journal").exists()


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        (("run", "--instances=2", "--repeats=0"), "repeats must be greater than or equal to 1 (got 0"),
        (("run", "--instances=2", "--repeats=1.5"), "1.5"),
        (("run", "--instances=2", "--repeats=many"), "many"),
        (("run", "--repeats=2"), "repeats=2 needs instances"),
        (("judge", "--repeats=-1", "--judge-model", "j", "--judge-url", "http://127.0.0.1:9/v1"), "got -1"),
    ],
)
def test_repeats_that_cannot_be_are_refused(
    headgate: Command, roster: Path, command: tuple[str, ...], rule: str
) -> None:
    said = headgate(*command, "-e", "affine:sat-hard", "--roster", str(roster))
    assert said.status == 2
    assert "repeats" in said.err
    assert rule in said.err


@pytest.mark.parametrize("command", ["run", "rank", "judge"])
def test_a_fraction_of_a_task_is_refused_and_not_rounded(headgate: Command, roster: Path, command: str) -> None:
    said = headgate(command, "-e", "affine:sat-hard", "--roster", str(roster), "--instances=1.5")
    assert said.status == 2
    assert "it must be a whole number (got 1.5)" in " ".join(said.err.replace("│", "").split())


@pytest.mark.parametrize("seconds", ["0", "-5", "nan"])
def test_a_window_without_a_length_is_refused(headgate: Command, roster: Path, seconds: str) -> None:
    said = headgate("run", "-e", "affine:sat-hard", "--roster", str(roster), f"--duration={seconds}")
    assert said.status == 2
    assert f"the window (--duration) must last longer than 0 s (got {seconds})" in said.err


def test_a_run_that_takes_no_sample_says_when_the_next_is_due_and_what_to_do(
    headgate: Command, endpoint: str, tmp_path: Path
) -> None:
    (tmp_path / "one.yaml").write_text(f"models: [{{name: m, base_url: '{endpoint}', model: baseline-random}}]\n")
    once = ("run", "--roster", "one.yaml", "-e", "affine:sat", "--duration", "1")
    first = headgate(*once)
    assert "1 sample, 1 stored" in first.out, "a pair that is new has its first sample at once"
    second = headgate(*once)
    assert second.status == 0
    assert "no samples: nothing fell due within 1s; the next sample is due in " in second.out
    assert "a model has a sample in an environment every 4m 48s" in second.out
    assert "--instances 20" in second.out


def test_a_run_tells_of_no_failures_of_models_that_it_does_not_sample(
    headgate: Command, endpoint: str, tmp_path: Path
) -> None:
    roster, matrix = tmp_path / "one.yaml", ("-e", "affine:sat", "--instances", "2")
    for served, failures in (("nobody", 1), ("baseline-random", 0)):
        roster.write_text(f"models: [{{name: {served}, base_url: '{endpoint}', model: {served}}}]\n")
        said = headgate("run", "--roster", "one.yaml", *matrix)
        assert said.out.count("2 without a score: ") == failures
    assert "nobody" in said.out, "the table has all models of the campaign"


def test_what_failed_first_and_was_scored_later_is_not_told_of_as_unscored() -> None:
    rows = [
        ("m@main", "e", 0, None, "connection", "refused", 1.0),
        ("m@main", "e", 0, 1.0, None, None, 2.0),
        ("m@main", "e", 1, None, "connection", "refused", 3.0),
        ("m@main", "e", 1, None, "auth", "HTTP\n401", 4.0),
    ]
    columns = ["model", "environment", "sequence", "score", "error_kind", "error", "finished_at"]
    samples = pl.DataFrame(rows, schema=columns, orient="row")
    assert missing_lines(samples) == ["1 without a score: auth, such as HTTP 401"]


def test_answers_that_were_cut_off_are_counted_and_their_models_named() -> None:
    rows = [
        ("m@main", "e", number, 0.0, None, None, 1.0, finish) for number, finish in enumerate(("length", "stop", None))
    ]
    columns = ["model", "environment", "sequence", "score", "error_kind", "error", "finished_at", "finish_reason"]
    samples = pl.DataFrame(rows, schema=columns, orient="row")
    assert missing_lines(samples) == ["1 with an answer cut off at its token limit: m@main; raise max_tokens"]


def test_an_evaluation_that_is_run_again_runs_nothing_again(headgate: Command, sampled) -> None:
    said = headgate("run", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "8", "--json")
    assert said.document["samples"] == 4


def test_query_answers_sql_over_the_samples(headgate: Command, sampled) -> None:
    said = headgate(
        "query", "select model, count(*) as n, avg(score) as mean from samples group by 1 order by 1", "--json"
    )
    assert said.status == 0
    assert said.document == [
        {"model": "random@main", "n": 6, "mean": 0.0},
        {"model": "solver@main", "n": 6, "mean": 1.0},
    ]


def test_query_that_is_no_sql_says_which_columns_there_are(headgate: Command, sampled) -> None:
    said = headgate("query", "select scoer from samples")
    assert said.status == 2
    assert "score" in said.err


def test_summary_shows_means_with_intervals(headgate: Command, sampled) -> None:
    rows = {row["model"]: row for row in headgate("summary", "--json").document}
    assert rows["solver@main"]["samples"] == 6
    assert rows["solver@main"]["low"] < 1.0 <= rows["solver@main"]["high"]


def test_a_model_with_a_price_has_a_cost_everywhere_and_one_without_has_none(headgate: Command, sampled) -> None:
    asked = "select model, sum(cost_micro) cost, sum(floor(prompt_tokens / 2 + 2 * completion_tokens + 0.5)) due"
    stored = {row["model"]: row for row in headgate("query", f"{asked} from samples group by model", "--json").document}
    assert stored["random@main"]["cost"] is None
    assert stored["solver@main"]["cost"] == stored["solver@main"]["due"] > 0
    summary = {row["model"]: row for row in headgate("summary", "--json").document}
    assert summary["solver@main"]["cost"] == pytest.approx(stored["solver@main"]["cost"] / 1e6)
    assert summary["random@main"]["cost"] is None
    board = {row["model"]: row["cost"] for row in headgate("leaderboard", "--json").document["models"]}
    assert board["solver@main"]["cost_micro"] == stored["solver@main"]["cost"]
    assert board["random@main"] is None
    assert "per point" in headgate("leaderboard").out


def test_report_writes_a_self_contained_page(headgate: Command, sampled, tmp_path: Path) -> None:
    said = headgate("report", "--output", "out/report.html", "--title", "My report")
    assert said.status == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "My report" in page
    assert "solver@main" in page
    assert 'http-equiv="Content-Security-Policy"' in page


def test_export_and_import_give_the_same_samples(headgate: Command, sampled, tmp_path: Path) -> None:
    assert headgate("export", "samples.jsonl", "--json").document["rows"] == 12
    said = headgate("import", "samples.jsonl", "--store", "another", "--json")
    assert said.document["rows"] == 12
    assert headgate("import", "samples.jsonl", "--store", "another", "--json").document["rows"] == 0
    first = json.loads((tmp_path / "samples.jsonl").read_text().splitlines()[0])
    assert first["environment"] == "affine:sat-hard"


def test_compact_and_verify_keep_every_sample(headgate: Command, sampled) -> None:
    headgate("run", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "8", "--json")
    assert headgate("compact", "--json").status == 0
    said = headgate("verify", "--json")
    assert said.status == 0
    assert said.document["problems"] == []
    assert headgate("query", "select count(*) as n from samples", "--json").document == [{"n": 16}]


def test_verify_exits_with_4_on_a_part_that_was_changed(headgate: Command, sampled, tmp_path: Path) -> None:
    part = next((tmp_path / ".headgate").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-10] + b"0123456789")
    said = headgate("verify", "--json")
    assert said.status == 4
    assert len(said.document["problems"]) == 1


def test_plan_uses_the_measured_durations(headgate: Command, sampled) -> None:
    said = headgate("plan", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--json")
    assert said.document["is_measured"] == {"affine:sat-hard": True}


def test_plan_counts_the_limits_per_minute_that_runs_have_learnt(
    headgate: Command, sampled, tmp_path: Path, endpoint: str
) -> None:
    key = LimitKey(endpoint.rstrip("/"), "baseline-solver", "requests_per_minute")
    place, campaign = tmp_path / ".headgate" / "journal", Settings().campaign
    assert Journal.is_there(place, campaign), "the run has left one"
    with contextlib.closing(Journal(place, campaign)) as journal:
        journal.share_limits({key: LimitReport(8, None, 2)}, time.time())
    said = headgate("plan", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--set", "rates=*=600", "--json")
    found = {limit["name"]: limit["carries_per_day"] for limit in said.document["limits"]}
    assert found["requests_per_minute model solver@main, learnt from refusals"] == 2 * 1_440


def test_plan_says_what_a_day_costs_and_why_auto_asks_at_once(headgate: Command, sampled) -> None:
    given = ("plan", "--roster", "roster.yaml", "--prices", "prices.yaml", "-e", "affine:sat-hard")
    asked = "select sum(prompt_tokens) p, sum(completion_tokens) c from samples where model = 'solver@main'"
    (tokens,) = headgate("query", asked, "--json").document
    found = headgate(*given, "--set", "rates=*=600", "--set", "lanes=auto", "--json").document
    (cost,) = found["costs"]
    per_day = 100 * (0.5 * int(tokens["p"]) + 2.0 * int(tokens["c"])) / 1e6  # 600 samples, of which 6 are stored
    assert cost == {"model": "solver@main", "per_day": pytest.approx(per_day, abs=1e-6), "share": 1.0}
    assert found["auto_lanes"]["solver@main"] == "at once: no price says that its batches cost less"
    said = headgate(*given)
    assert "solver@main: " in said.out
    assert "prices: prices.yaml of 2026-01-31 (a list)" in said.out


def test_doctor_finds_what_is_well_and_what_is_not(headgate: Command, sampled) -> None:
    findings = {f["check"]: f for f in headgate("doctor", "--roster", "roster.yaml", "--json").document}
    assert (findings["endpoints"]["ok"], findings["endpoints"]["found"]) == (True, "1 endpoint answers")
    assert findings["sample store"]["ok"]
    said = headgate("doctor", "--roster", "missing.yaml", "--json")
    assert said.status == 3
    missing = {f["check"]: f for f in said.document}
    assert (missing["roster"]["ok"], missing["endpoints"]["ok"]) == (False, False)
    assert missing["roster"]["next_step"]
    Path("two.yaml").write_text("models:\n  - {name: a}\n  - {base_url: nowhere}\n")
    assert "\\n" not in headgate("doctor", "--roster", "two.yaml").out, "each problem of a roster has a line of its own"
    assert (missing["endpoints"]["found"], missing["endpoints"]["next_step"]) == ("see roster", "")


def test_a_store_that_cannot_be_written_is_refused_at_once(headgate: Command, sampled, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    said = headgate("run", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--store", "file/samples")
    assert said.status == 3
    assert "store_not_writable" in said.err


def test_plan_says_where_every_limit_comes_from(headgate: Command, sampled) -> None:
    said = headgate("plan", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--workers", "3", "--json")
    configured = said.document["capacity"]["configured"]
    assert (configured["num_evaluation_workers"]["value"], configured["num_evaluation_workers"]["source"]) == (
        3,
        "flag",
    )
    assert "max_parallel solver@main" in configured


def test_run_writes_a_trace(headgate: Command, sampled, tmp_path: Path) -> None:
    options = (
        "--roster",
        "roster.yaml",
        "-e",
        "affine:sat-hard",
        "--instances",
        "8",
        "--trace",
        "trace.json",
        "--json",
    )
    assert headgate("run", *options).status == 0
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_doctor_tells_a_journal_that_is_ahead_of_the_clock(
    headgate: Command, sampled, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = SimpleNamespace(time=lambda: time.time() - 2 * 86_400.0)
    monkeypatch.setattr("headgate.cli.doctor.time", behind)
    findings = {f["check"]: f for f in headgate("doctor", "--roster", "roster.yaml", "--json").document}
    assert not findings["journal"]["ok"]
    assert "the newest time in" in findings["journal"]["found"]


def test_doctor_tells_a_journal_whose_disk_is_nearly_full(
    headgate: Command, sampled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.cli.doctor.shutil.disk_usage", lambda _: SimpleNamespace(free=3 << 20))
    said = {f["check"]: f for f in headgate("doctor", "--roster", "roster.yaml", "--json").document}["journal"]
    assert (said["ok"], said["found"].endswith("is on a disk with 3 MiB free; at least 64 are needed")) == (False, True)


def test_a_damaged_journal_ends_a_run_with_one_error_and_is_repaired(
    headgate: Command, sampled, tmp_path: Path
) -> None:
    journal = next((tmp_path / ".headgate").rglob("journal.db"))
    assert headgate("repair", "--json").document["kept_as"] == ""
    data = bytearray(journal.read_bytes())
    with sqlite3.connect(journal) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'pairs'").fetchone()
    db.close()
    data[(root - 1) * 4_096 : root * 4_096] = bytes(4_096)
    journal.write_bytes(data)
    again = ("run", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "9")
    said = headgate(*again)
    assert said.status == 3
    assert "headgate repair" in "".join(said.err.split("\n")).replace("  ", " ")
    assert "Traceback" not in said.err
    findings = {f["check"]: f for f in headgate("doctor", "--roster", "roster.yaml", "--json").document}
    assert "damaged" in findings["journal"]["found"]
    assert headgate("repair").status == 4
    said = headgate(*again, "--json")
    assert said.status == 0
    assert said.document["samples"] == 6


def test_a_second_journal_of_a_campaign_is_refused_and_a_task_counts_once(
    headgate: Command, sampled, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / ".headgate/samples"))
    other = Journal(tmp_path / "elsewhere", "main")
    key, place = other.lease()
    asyncio.run(store.renew(key, place, ["affine:sat-hard"], is_new=True))
    again = ("run", "--roster", "roster.yaml", "-e", "affine:sat-hard", "--instances", "9", "--json")
    refused = headgate(*again[:-1])
    assert (refused.status, "campaign_in_use" in refused.err) == (3, True)
    asyncio.run(store.give_back(key))
    other.close()
    assert headgate(*again).document["samples"] == 6
    assert list((tmp_path / ".headgate/samples/leases").rglob("*.*")) == []
    rows = asyncio.run(store.scan()).frame
    twice = [Sample(**row) for row in rows.head(4).iter_rows(named=True)]
    asyncio.run(store.put_batch("of-another-journal", twice))
    ask = "select count(*) as n, count(distinct task_id) as tasks from {}"
    assert headgate("query", ask.format("samples"), "--json").document == [{"n": 18, "tasks": 18}]
    assert headgate("query", ask.format("stored"), "--json").document == [{"n": 22, "tasks": 18}]


@pytest.mark.parametrize("command", ["models", "plan"])
def test_a_budget_in_money_without_a_price_is_refused_before_the_run(
    headgate: Command, tmp_path: Path, command: str
) -> None:
    (tmp_path / "roster.yaml").write_text("models:\n  - {name: a, base_url: 'http://127.0.0.1:9/v1', daily_cost: 2}\n")
    said = headgate(command, "--roster", "roster.yaml")
    assert said.status == 2
    assert "daily_cost needs the price of a model: a@main" in " ".join(said.err.split())
    (tmp_path / "prices.yaml").write_text(
        "date: 2026-01-31\nsource: a list\nprices:\n  - {model: a, input: 1, output: 2}\n"
    )
    assert headgate(command, "--roster", "roster.yaml", "--prices", "prices.yaml").status == 0


def test_a_model_whose_samples_have_no_tokens_is_not_said_to_cost_nothing(
    headgate: Command, tmp_path: Path, endpoint: str
) -> None:
    price = "price_in: 1, price_out: 3, daily_cost: 2"
    (tmp_path / "roster.yaml").write_text(f"models:\n  - {{name: nobody, base_url: '{endpoint}', {price}}}\n")
    given = ("--roster", "roster.yaml", "-e", "affine:sat-hard")
    assert headgate("run", *given, "--instances", "2").status == 4, "no such model is served"
    said = headgate("plan", *given)
    assert "0.0000 a day" not in said.out
    assert "daily_cost nobody@main: capacity unknown, as no stored sample has token counts" in said.out


def test_more_instances_than_an_environment_has_tasks_are_told_of() -> None:
    assert _short_of_tasks(Settings(environments=("affine:abd",), instances=12_070)) == []
    remarks = _short_of_tasks(Settings(environments=("affine:abd",), instances=12_071))
    assert remarks == ["affine:abd has 12,070 tasks: 12,071 instances take some of them more than once"]


@pytest.mark.parametrize(
    ("command", "needs"),
    [
        (("rank", "--roster", "baselines"), "`headgate rank` needs --instances: Rank the models on this many tasks"),
        (("invalidate", "--model", "m"), "`headgate invalidate` needs --reason: "),
        (
            ("run", "roster.yaml"),
            "`headgate run` has no use for 'roster.yaml'; `headgate run --help` shows what it takes",
        ),
        (("rank", "--instances"), "requires an argument"),
    ],
)
def test_an_option_that_is_left_out_is_named_with_what_it_is(
    headgate: Command, command: tuple[str, ...], needs: str
) -> None:
    said = headgate(*command)
    assert said.status == 2
    assert needs in " ".join(said.err.replace("│", " ").split())


def test_a_run_whose_roster_cannot_be_read_leaves_nothing_behind(headgate: Command, tmp_path: Path) -> None:
    said = headgate("run", "--roster", "nothere.yaml")
    assert (said.status, "nothere.yaml cannot be read" in said.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
