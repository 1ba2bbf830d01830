"""Files are written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headgate.durable import files
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator import json_bytes, write_files


def test_files_have_the_mode_that_the_umask_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_files({tmp_path / "deep" / "jobs.json": b"[]"})
    finally:
        os.umask(before)
    assert (tmp_path / "deep" / "jobs.json").stat().st_mode & 0o777 == 0o640


def test_a_file_that_exists_keeps_its_mode_and_a_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o604)
    link.symlink_to(target)
    write_files({link: b"new"})
    assert (link.is_symlink(), target.read_text(), target.stat().st_mode & 0o777) == (True, "new", 0o604)


def test_nothing_is_replaced_when_one_file_cannot_be_written(tmp_path: Path) -> None:
    first = tmp_path / "jobs.json"
    first.write_text("old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidJobError, match="folder cannot be written: is a folder"):
        write_files({first: b"new", tmp_path / "folder": b"new"})
    assert (first.read_text(), sorted(p.name for p in tmp_path.iterdir())) == ("old", ["folder", "jobs.json"])


def test_a_write_that_breaks_off_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InvalidJobError, match="cannot be written: No space left on device"):
        write_files({tmp_path / "jobs.json": b"new"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a\0b", "a" * 300])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidJobError, match="cannot be written"):
        write_files({tmp_path / name: b""})


def test_documents_are_readable_and_end_with_a_newline() -> None:
    assert json_bytes([{"team": "é"}]).decode() == '[\n  {\n    "team": "é"\n  }\n]\n'
    with pytest.raises(ValueError, match="Out of range"):
        json_bytes([float("nan")])
    assert json.loads(json_bytes([])) == []
