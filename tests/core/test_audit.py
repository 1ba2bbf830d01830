"""The audit trail: every change is on the disk once, whoever else writes, within bounds and without secrets."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.core import Secret, audit
from headgate.core.audit import AuditEntry, audit_entries, process_user, record_change


def _things() -> list[str]:
    return [entry.thing for entry in audit_entries()]


def test_an_entry_says_who_changed_what_from_what_to_what(audit_file: Path) -> None:
    record_change("limits set", "headgate:x", before=4, after=8)
    record_change("elastic scale", "chat", after=2, who="token root")
    first, second = audit_entries()
    assert (first.who, first.what, first.thing, first.before, first.after) == (
        process_user(), "limits set", "headgate:x", "4", "8",
    )  # fmt: skip
    assert (second.who, second.before, second.after) == ("token root", "", "2")
    assert first.at <= second.at
    assert first.at.endswith("+00:00")
    assert audit_file.stat().st_mode & 0o777 == 0o600


def test_what_has_fields_is_written_as_json(audit_file: Path) -> None:
    record_change("audit copy", "entry", before=None, after=AuditEntry("now", "me", "did", "it"))
    (entry,) = audit_entries()
    assert json.loads(entry.after)["thing"] == "it"


def test_whoever_a_flow_run_works_for_is_named(audit_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "0190-run")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    record_change("samples compact", "store")
    (entry,) = audit_entries()
    assert entry.who.startswith("flow run 0190-run, user ")
    assert "somebody-else" not in entry.who


def test_secrets_are_masked_and_long_texts_cut(audit_file: Path) -> None:
    secret = Secret("correct-horse-battery")
    record_change("jobqueue withdraw", "17", after=f"because {secret.reveal()} leaked, {'x' * 9_000}")
    assert secret.reveal() not in audit_file.read_text()
    assert audit_file.stat().st_size < 1_000


def test_a_full_file_makes_room_and_the_oldest_is_dropped(audit_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MOST_BYTES", 1_000)
    for number in range(200):
        record_change("test", f"{number:03}", who="w")
    kept = sorted(path.name for path in audit_file.parent.iterdir())
    assert kept == ["audit.jsonl", *(f"audit.jsonl.{number}" for number in range(1, audit.OLDER_FILES + 1))]
    assert all(path.stat().st_size <= 1_000 for path in audit_file.parent.iterdir())
    things = _things()
    assert things == [f"{number:03}" for number in range(200 - len(things), 200)]
    assert len(things) > 40


def test_processes_that_write_at_once_lose_nothing(audit_file: Path) -> None:
    program = (
        "import sys; from headgate.core import audit; audit.MOST_BYTES = 4_000\n"
        "for number in range(40): audit.record_change('test', f'{sys.argv[1]}{number}', who='w')"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, name]) for name in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert sorted(_things()) == sorted(f"{name}{number}" for name in "abc" for number in range(40))


def test_a_torn_line_costs_only_itself(audit_file: Path) -> None:
    record_change("test", "first")
    with audit_file.open("ab") as file:
        file.write(b'{"at": "2026-')
    record_change("test", "second")
    assert _things() == ["first", "second"]


def test_what_cannot_be_written_stands_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADGATE_AUDIT_FILE", str(tmp_path / "file" / "audit.jsonl"))
    with caplog.at_level(logging.ERROR, logger="headgate.audit"):
        record_change("limits set", "headgate:x", after=8)
    assert "cannot be written" in caplog.text
    assert "headgate:x" in caplog.text


def test_a_link_in_place_of_the_file_is_not_followed(audit_file: Path, tmp_path: Path) -> None:
    audit_file.parent.mkdir()
    audit_file.symlink_to(tmp_path / "elsewhere")
    record_change("test", "thing")
    assert not (tmp_path / "elsewhere").exists()


def test_a_line_that_is_no_entry_is_passed_over(audit_file: Path) -> None:
    audit_file.parent.mkdir()
    audit_file.write_text('[1]\n"x"\n{"at": 1}\nnonsense\n')
    record_change("test", "thing")
    assert [type(entry) for entry in audit_entries()] == [AuditEntry]
