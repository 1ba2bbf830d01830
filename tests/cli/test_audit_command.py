"""`headgate audit` shows who changed what."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.core.audit import record_change
from tests.cli.conftest import Command


@pytest.fixture
def trail(audit_file: Path) -> Path:
    record_change("limits set", "headgate:x", before=4, after=8)
    record_change("jobqueue withdraw", "17", after="dead", who="token ci (0123456789ab)")
    record_change("jobqueue requeue", "17", after="pending", who="token ci (0123456789ab)")
    return audit_file


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), ["limits set", "jobqueue withdraw", "jobqueue requeue"]),
        (("--who", "token ci"), ["jobqueue withdraw", "jobqueue requeue"]),
        (("--what", "headgate:x"), ["limits set"]),
        (("--what", "requeue"), ["jobqueue requeue"]),
        (("--limit", "1"), ["jobqueue requeue"]),
        (("--since", "1h"), ["limits set", "jobqueue withdraw", "jobqueue requeue"]),
        (("--since", "2100-01-01"), []),
    ],
)
def test_changes_are_chosen(headgate: Command, trail: Path, options: tuple[str, ...], shown: list[str]) -> None:
    assert [entry["what"] for entry in headgate("audit", *options, "--json").document] == shown


def test_a_table_has_every_column(headgate: Command, trail: Path) -> None:
    out = headgate("audit").out
    assert all(text in out for text in ("3 changes", "limits set", "headgate:x", "4", "8", "token ci (0123456789ab)"))


def test_without_a_trail_there_are_no_changes(headgate: Command, audit_file: Path) -> None:
    assert headgate("audit", "--json").document == []


def test_a_limit_below_one_is_refused(headgate: Command, audit_file: Path) -> None:
    said = headgate("audit", "--limit", "0")
    assert (said.status, "--limit must be >= 1 (got 0)" in said.err) == (2, True)
