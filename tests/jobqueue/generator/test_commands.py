"""`headgate jobqueue generate|import|export|results`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.jobqueue.generator.conftest import Command
from tests.jobqueue.generator.site import Site, server


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_files_are_generated_beside_their_sources(jobqueue: Command, site: Site) -> None:
    site.submit("privileged.b.json", "Beta", 0.5, radio=0.5, gone=0.5)
    said = jobqueue("generate")
    assert said.status == 0
    assert [job["id"] for job in _read(site.root / "jobs.json")] == [0, 1]
    assert _read(site.root / "resources.json") == {"alpha": [server("alpha-1")]}
    for part in ("2 jobs of 2 submissions", "beta", "has no test instances", "the team has no servers"):
        assert part in said.out
    assert "wrote resources.json and jobs.json" in said.err


def test_a_dry_run_writes_nothing(jobqueue: Command, site: Site) -> None:
    before = sorted(site.root.iterdir())
    said = jobqueue("generate", "--dry-run", "--json")
    assert (said.status, said.document["jobs"], said.document["files"]) == (0, 2, [])
    assert "nothing was written" in jobqueue("generate", "--dry-run", "--url", "http://127.0.0.1:9").err
    assert sorted(site.root.iterdir()) == before


def test_every_option_counts(jobqueue: Command, site: Site) -> None:
    site.submit("standard.b.json", "B", 0.4, radio=0.0)
    site.serve(alpha=[server("1")], b=[server("2", compatible_task="x"), server("3")])
    site.finish("alpha", "radio", 1)
    site.finish("alpha", "radio", 2, "{")
    (site.instances / "radio" / "scene.json").write_text("{}")
    options = (
        "generate", "--results-dir", "results", "--all-tasks-team", "b", "--top", "2", "--legacy-groups",
        "--output-jobs-file", "out/j.json", "--output-resources-file", "out/r.json", "--json",
    )  # fmt: skip
    assert jobqueue(*options).document == {
        "jobs": 3,
        "submissions": [
            {"file": "standard.alpha.json", "track": "standard", "team": "alpha", "q_score": 0.5},
            {"file": "standard.b.json", "track": "standard", "team": "b", "q_score": 0.4},
        ],
        "teams": [
            {"team": "alpha", "name": "Alpha", "tasks": 1, "jobs": 1},
            {"team": "b", "name": "B", "tasks": 1, "jobs": 2},
        ],
        "skipped": [{"team": "alpha", "task": "radio", "reason": "has results already", "jobs": 1}],
        "servers": {"alpha_1": 1, "b_1": 1, "b_2": 1},
        "ignored_files": ["radio/scene.json"],
        "unreadable_results": ["results/alpha/metrics/radio_2.json"],
        "files": ["out/r.json", "out/j.json"],
        "sent": None,
    }
    assert [job["resource_type"] for job in _read(site.root / "out" / "j.json")] == ["alpha_1", "b_2", "b_2"]
    said = jobqueue(*options[:-1])
    assert "radio/scene.json" in said.err
    assert "results/alpha/metrics/radio_2.json" in said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("generate", "--top", "0"), "--top must be >= 1 (got 0)"),
        (("generate", "--submissions-dir", "nowhere"), "folder of submissions nowhere cannot be read"),
        (("generate", "--resources-raw-file", "nowhere"), "file of policy servers nowhere cannot be read"),
        (("generate", "--output-jobs-file", "."), "cannot be written: is a folder"),
        (("import", "--database", "sqlite:///q.db"), "file of jobs jobs.json cannot be read"),
        (("export", "--database", "sqlite:///q.db", "--url", "http://h"), "--url and --database name two queues"),
        (("export", "--database", "memory:"), "memory: would be empty after this command"),
        (("results", "--results-dir", "nowhere"), "folder of results nowhere does not exist"),
        (("results", "--results-dir", ".", "--team", "x"), "--team names 'x', but that team has no submission"),
    ],
)
def test_input_that_cannot_be_used_is_told(jobqueue: Command, arguments: tuple[str, ...], said: str) -> None:
    answer = jobqueue(*arguments)
    assert answer.status == 2
    assert said in " ".join(answer.err.split())


def test_nothing_is_exported_from_a_database_that_is_not_there(jobqueue: Command, site: Site) -> None:
    assert jobqueue("export", "--database", "sqlite:///q.db").status == 3
    assert not (site.root / "q.db").exists()
    assert not (site.root / "jobs.json").exists()


def test_files_make_the_journey_through_a_database(jobqueue: Command, site: Site) -> None:
    database = ("--database", "sqlite:///q.db")
    jobqueue("generate", "--legacy-groups")
    taken = jobqueue("import", *database, "--json").document
    assert taken == {"added": 2, "existing": 0, "servers": 1, "unserved": 0, "others": [], "done_left_out": 0}
    assert "jobs: 0 added, 2 there already" in jobqueue("import", *database).err
    answer = jobqueue("export", *database, "--jobs-file", "j.json", "--resources-file", "r.json", "--json")
    assert answer.document == {"jobs": 2, "servers": 1, "files": ["j.json", "r.json"]}
    assert _read(site.root / "r.json") == _read(site.root / "resources.json")
    for written, generated in zip(_read(site.root / "j.json"), _read(site.root / "jobs.json"), strict=True):
        assert written | generated == written


def test_one_file_can_be_taken_in_alone(jobqueue: Command, site: Site) -> None:
    database = ("--database", "sqlite:///q.db")
    jobqueue("generate")
    assert "2 jobs cannot start: no policy server" in jobqueue("import", "--jobs-file", "jobs.json", *database).err
    assert jobqueue("import", "--resources-file", "resources.json", *database, "--json").document["servers"] == 1


def test_results_are_csv_of_a_folder_or_a_queue(jobqueue: Command, site: Site) -> None:
    site.finish("alpha", "radio", 1)
    header = "team,task,sr_q_score,eval_q_score,finished_eval,started_eval\n"
    assert jobqueue("results", "--results-dir", "results").out == header + "alpha,radio,0.5,0.5,1,1\n"
    jobqueue("generate")
    jobqueue("import", "--database", "sqlite:///q.db")
    assert jobqueue("results", "--database", "sqlite:///q.db").out == header + "alpha,radio,0.5,,0,0\n"
    jobqueue("results", "--results-dir", "results", "--output", "r.csv")
    assert (site.root / "r.csv").read_text() == header + "alpha,radio,0.5,0.5,1,1\n"
    (row,) = jobqueue("results", "--results-dir", "results", "--json").document
    assert row["eval_q_score"] == 0.5
