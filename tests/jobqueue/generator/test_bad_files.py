"""What is wrong with a file is said with the file, the place, the value and the rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator import (
    imported_jobs,
    parsed_json,
    read_instances,
    read_json,
    read_submissions,
    resources_of,
    servers_of,
    submission_of,
)
from tests.jobqueue.generator.site import Site, server

LONG = "x" * 1_000_000


def _said(error: pytest.ExceptionInfo[InvalidJobError]) -> str:
    assert len(error.value.message) < 5_000
    assert error.value.next_step
    return error.value.message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "f.json: line 1, column 1: is not JSON"),
        (b'{"a": 1,\n "b": }', "f.json: line 2, column 7: is not JSON: unexpected character"),
        (b"\xff\xfe", "f.json: line 1, column 1: is not JSON: str is not valid UTF-8"),
        (b"[" * 200_000, "is not JSON: depth limit exceeded"),
        (b'[{"a": 1, "b": 2, "a": 3}]', "f.json: field a is named twice in one object"),
        (b"[1, [2, NaN]]", "f.json: line 1, column 9: is not JSON"),
        (b'{"a": {"b": -Infinity}}', "f.json: line 1, column 14: is not JSON"),
        (b'{"a": 1e999}', "f.json: line 1, column 7: is not JSON: number is infinity"),
        (b'{"a": "\\ud800"}', "f.json: line 1, column 8: is not JSON: no low surrogate"),
        (b'{"\\udc00": 1}', "f.json: line 1, column 3: is not JSON: invalid high surrogate"),
        (b"9" * 5_000, "f.json: "),
    ],
)
def test_text_that_is_no_json_is_refused_where_it_goes_wrong(data: bytes, said: str) -> None:
    with pytest.raises(InvalidJobError) as error:
        parsed_json(data, "f.json")
    assert said in _said(error)


def test_a_surrogate_pair_is_a_character() -> None:
    assert parsed_json(b'["\\ud83d\\ude00", "\\\\ud800"]', "f.json") == ["\U0001f600", "\\ud800"]


@pytest.mark.parametrize("name", ["nowhere.json", ".", "\0", "a" * 300])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidJobError, match=r"jobs .* cannot be read: ") as error:
        read_json(tmp_path / name, "jobs")
    assert _said(error)


def _submission(**changed: Any) -> dict[str, Any]:
    document = {"team": "A", "overall_scores": {"q_score": 0.5}, "per_task_scores": {"q_score": {"radio": 0.5}}}
    return {name: value for name, value in (document | changed).items() if value is not ...}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "a.json: the document: must be an object (got an empty list)"),
        (_submission(team=...), "a.json: team: is missing"),
        (_submission(team=7), "a.json: team: must be text (got 7)"),
        (_submission(team=""), "team: must have 1 to 200 characters (got '')"),
        (_submission(team=LONG), "team: must have 1 to 200 characters (got 'xxx"),
        (_submission(team="a\0b"), "team: must have no control characters"),
        (_submission(team="!?"), "team: must contain a letter or a digit"),
        (_submission(team="鱻" * 190), "as a folder's name, which must have 1 to 200 characters"),
        (_submission(overall_scores={}), "overall_scores.q_score: is missing"),
        (_submission(overall_scores=None), "overall_scores: must be an object (got null)"),
        (_submission(overall_scores={"q_score": "0.5"}), "overall_scores.q_score: must be a number (got '0.5')"),
        (_submission(overall_scores={"q_score": True}), "overall_scores.q_score: must be a number (got true)"),
        (
            _submission(overall_scores={"q_score": float("nan")}),
            "overall_scores.q_score: must be a finite number (got nan)",
        ),
        (
            _submission(per_task_scores={"q_score": {"radio": float("nan")}}),
            "per_task_scores.q_score.radio: must be a finite number (got nan)",
        ),
        (_submission(per_task_scores={"q_score": {"radio": None}}), "q_score.radio: must be a number (got null)"),
        (_submission(per_task_scores={"q_score": ["radio"]}), "per_task_scores.q_score: must be an object (got a list"),
        (
            _submission(per_task_scores={"q_score": {"..": 1}}),
            "q_score...: must have no '/' or '\\' and not be '.' or '..'",
        ),
        (_submission(per_task_scores={"q_score": {"../../etc": 1}}), "must have no '/' or '\\'"),
        (_submission(per_task_scores={"q_score": {"a\0": 1}}), "q_score.'a\\x00': must have no control characters"),
        (_submission(per_task_scores={"q_score": {LONG: 1}}), "must have 1 to 200 characters"),
    ],
)
def test_a_submission_that_breaks_a_rule_is_refused(document: object, said: str) -> None:
    with pytest.raises(InvalidJobError) as error:
        submission_of(document, "a.json", "a.json")
    assert said in _said(error)


def test_everything_that_is_wrong_with_a_file_is_said_at_once() -> None:
    with pytest.raises(InvalidJobError, match=r"a\.json: 2 problems: \(1\) team: .* \(2\) overall_scores\.q_score: "):
        submission_of(_submission(team=1, overall_scores={}), "a.json", "a.json")


def test_further_fields_of_a_submission_are_let_be() -> None:
    document = _submission(affiliation=["x"], per_rollout_scores={"q_score": {}})
    document["overall_scores"]["task_sr"] = "any"
    assert submission_of(document, "a.json", "a.json").team == "A"


@pytest.mark.parametrize("files", [{}, {"notes.txt": "{}"}, {".hidden.json": "{}"}])
def test_a_folder_without_submissions_is_refused(site: Site, files: dict[str, str]) -> None:
    folder = site.root / "empty"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(InvalidJobError, match=r"contains no \.json file of a submission"):
        read_submissions(folder)
    with pytest.raises(InvalidJobError, match="cannot be read: No such file"):
        read_submissions(site.root / "nowhere")


def test_all_submissions_that_cannot_be_used_are_told_at_once(site: Site) -> None:
    site.write_submission("standard.y.json", "[]")
    site.write_submission("standard.z.json", "{")
    with pytest.raises(
        InvalidJobError, match=r"standard\.y\.json: .*must be an object.*; .*standard\.z\.json: line 1"
    ) as refused:
        read_submissions(site.submissions)
    assert "Correct these files" in refused.value.next_step


def test_the_file_of_a_bad_submission_is_named(site: Site) -> None:
    site.write_submission("standard.z.json", "{")
    with pytest.raises(InvalidJobError, match=r"standard\.z\.json: line 1, column 2"):
        read_submissions(site.submissions)


@pytest.mark.parametrize(
    "name", ["x_template-tro_state.json", "a_b_template-tro_state.json", "a_-3_template-tro_state.json"]
)
def test_an_instance_without_a_number_is_refused(site: Site, name: str) -> None:
    (site.instances / "radio" / name).write_text("{}")
    with pytest.raises(InvalidJobError, match=f"radio/{name}: the part before .* must end with _ and a whole number"):
        read_instances(site.instances)


def test_two_instances_with_one_number_are_refused(site: Site) -> None:
    (site.instances / "radio" / "other_house_01_template-tro_state.json").write_text("{}")
    with pytest.raises(InvalidJobError, match="has number 1, which house_task_radio_0_1_template"):
        read_instances(site.instances)


def test_files_that_are_no_instances_are_ignored_and_told(site: Site) -> None:
    (site.instances / "radio" / "scene.json").write_text("{}")
    (site.instances / "radio" / "notes.txt").write_text("")
    (site.instances / "empty").mkdir()
    found = read_instances(site.instances)
    assert (sorted(found.by_task), found.ignored) == (["radio"], ("radio/scene.json",))


def test_a_folder_without_instances_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "none" / "radio").mkdir(parents=True)
    with pytest.raises(InvalidJobError, match="contains no file <task>/"):
        read_instances(tmp_path / "none")
    with pytest.raises(InvalidJobError, match="cannot be read: No such file"):
        read_instances(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "r.json: the document: must be an object of lists of servers (got an empty list)"),
        (
            {"a": []},
            "a: must be a list of at least one server; leave the name out when it has none (got an empty list)",
        ),
        ({"a": {}}, "a: must be a list of at least one server"),
        ({"": [server("h")]}, "the name of a list of servers: must have 1 to 200 characters (got '')"),
        ({"a\n": [server("h")]}, "the name of a list of servers: must have no control characters"),
        ({LONG: [server("h")]}, "the name of a list of servers: must have 1 to 200 characters"),
        ({"a": ["h:1"]}, "a[0]: must be an object (got 'h:1')"),
        ({"a": [{"port": 1}]}, "a[0].host: is missing"),
        ({"a": [{"host": "h"}]}, "a[0].port: is missing"),
        ({"a": [server("h", "8000")]}, "a[0].port: must be a whole number (got '8000')"),
        ({"a": [server("h", True)]}, "a[0].port: must be a whole number (got true)"),
        ({"a": [server("h", 80.5)]}, "a[0].port: must be a whole number (got 80.5)"),
        ({"a": [server("h", 0)]}, "a[0].port: "),
        ({"a": [server("h", 65_536)]}, "(got 65536)"),
        ({"a": [server("")]}, "a[0].host: must be a host name or address of 1 to 253 characters"),
        ({"a": [server("h x")]}, "without path or scheme except wss:// (got 'h x')"),
        ({"a": [server("h\0")]}, "a[0].host: must be a host name"),
        ({"a": [server(LONG)]}, "a[0].host: must be a host name or address of 1 to 253 characters"),
        ({"a": [server("h", compatible_task=[])]}, "a[0].compatible_task: must name at least one task; leave it out"),
        ({"a": [server("h", compatible_task=3)]}, "a[0].compatible_task: must be the name of a task or a list"),
        ({"a": [server("h", compatible_task=[3])]}, "must list names of tasks (got 3)"),
        ({"a": [server("h", not_compatible_task={"x": 1})]}, "a[0].not_compatible_task: must be the name of a task"),
        (
            {"a": [server("h", not_compatible_task=["a\0"])]},
            "names a task that breaks a rule: must have no control characters",
        ),
        (
            {"a": [server("h"), server("i"), server("h")]},
            "a[2]: a server serves one job at a time, so list it once: h:8000",
        ),
    ],
)
def test_a_file_of_servers_that_breaks_a_rule_is_refused(document: object, said: str) -> None:
    with pytest.raises(InvalidJobError) as error:
        servers_of(document, "r.json")
    assert said in _said(error)


def test_a_constraint_is_one_name_or_several_or_none() -> None:
    entries = [
        server("1", compatible_task="a", not_compatible_task=None),
        server("2", compatible_task=["a", "b"], not_compatible_task="b"),
        server("3", compatible_task=None, not_compatible_task=[]),
    ]
    found = servers_of({"x": entries}, "r.json")["x"]
    assert [[one.serves(task) for task in "abc"] for one in found] == [
        [True, False, False], [True, False, False], [True, True, True],
    ]  # fmt: skip
    assert [json.loads(one.body) for one in found] == entries


def _job(**changed: Any) -> dict[str, Any]:
    job = {"id": 1, "payload": {"team_slug": "a", "task": "t"}, "resource_type": "a_1", "status": "pending"}
    return {name: value for name, value in (job | changed).items() if value is not ...}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "jobs.json: the document: must be a list of jobs (got an object)"),
        ([1], "[0]: must be an object (got 1)"),
        ([_job(resource_type=...)], "[0].resource_type: is missing"),
        ([_job(resource_type=None)], "[0].resource_type: must be text (got null)"),
        ([_job(resource_type="a\0")], "[0].resource_type: must have no control characters"),
        ([_job(resource_type=LONG)], "[0].resource_type: must have 1 to 200 characters"),
        ([_job(id=1.5)], "[0].id: must be a whole number or text (got 1.5)"),
        ([_job(id=True)], "[0].id: must be a whole number or text (got true)"),
        ([_job(id=[])], "[0].id: must be a whole number or text (got an empty list)"),
        ([_job(id="")], "[0].id: must have 1 to 200 characters"),
        ([_job(id="..")], "[0].id: must have no '/' or '\\' and not be '.' or '..'"),
        ([_job(id="a/b")], "[0].id: must have no '/' or '\\'"),
        ([_job(id="a\\b")], "[0].id: must have no '/' or '\\'"),
        ([_job(id="a\0")], "[0].id: must have no control characters"),
        ([_job(id=LONG)], "[0].id: must have 1 to 200 characters"),
        ([_job(id=1), _job(id="1")], "[1].id: 1 is also the id of [0]"),
        ([_job(id=1), _job(id=...)], "[1].id: 1 is also the id of [0]; a job without an id gets its position"),
        ([_job(payload=[])], "[0].payload: must be an object (got an empty list)"),
        ([_job(payload=None)], "[0].payload: must be an object (got null)"),
        ([_job(payload={"task": 1})], "[0].payload.task: must be text (got 1)"),
        ([_job(payload={"task": "a\0"})], "[0].payload.task: must have no control characters"),
        ([_job(payload={"team_slug": LONG})], "[0].payload.team_slug: must have 1 to 200 characters"),
        ([_job(payload={"x": LONG})], "[0].payload: must be at most 262144 bytes as JSON (got 1000008)"),
        ([_job(attempts=-1)], "[0].attempts: "),
        ([_job(attempts="1")], "[0].attempts: must be a whole number (got '1')"),
        ([_job(status=1)], "[0].status: must be text (got 1)"),
        ([_job(assigned_at=float("nan"))], "[0].assigned_at: must be a finite number (got nan)"),
        ([_job(max_attempts=0)], "[0].max_attempts: "),
    ],
)
def test_a_file_of_jobs_that_breaks_a_rule_is_refused(document: object, said: str) -> None:
    with pytest.raises(InvalidJobError) as error:
        imported_jobs(document)
    assert said in _said(error)


def test_a_server_in_two_groups_of_a_team_is_refused() -> None:
    jobs = [job.spec for job in imported_jobs([_job()])]
    document = {"a_1": [server("h")], "a_2": [server("h", compatible_task="t")], "b_1": [server("h")]}
    with pytest.raises(InvalidJobError, match="a_2: h:8000 is in another group of a too; list it once"):
        resources_of(document, jobs)


def test_many_problems_are_counted() -> None:
    with pytest.raises(InvalidJobError, match=r"jobs\.json: 100 problems: \(1\) .* \(20\) .* and 80 more") as error:
        imported_jobs([_job(id=n, attempts=-1) for n in range(100)])
    assert "(21)" not in _said(error)
