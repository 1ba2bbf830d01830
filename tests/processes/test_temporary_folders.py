"""Folders for one process's files: gone with it, or with the next of their kind where it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from headgate.core.errors import InvalidInputError
from headgate.durable import locks
from headgate.durable.files import private_folder
from headgate.durable.locks import temporary_folder

OWNER = """
import sys, time
from headgate.durable.locks import temporary_folder
with temporary_folder("own-") as folder:
    (folder / "engine.log").write_text("loading")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary_files_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(locks, "_swept", {})


def test_the_folder_of_a_killed_process_goes_with_the_next_one_and_nobody_else_s_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owner.py").write_text(OWNER)
    with subprocess.Popen([sys.executable, "owner.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        (elsewhere := tmp_path / "elsewhere").mkdir()
        (tmp_path / "own-link").symlink_to(elsewhere)
        monkeypatch.setattr(locks, "_YOUNG_S", -1.0)
        with temporary_folder("own-"):
            assert folder.exists(), "its owner lives"
        owner.kill()
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(locks, "_swept", {})
    with temporary_folder("own-"):
        assert folder.exists(), "it is young: its owner may be about to lock it"
    later = time.time() + 100
    monkeypatch.setattr(time, "time", lambda: later)
    monkeypatch.setattr(locks, "_swept", {})
    with temporary_folder("own-") as mine:
        assert not folder.exists()
        assert mine.is_dir()
    assert not mine.exists()
    assert elsewhere.is_dir()


def test_whoever_makes_many_folders_looks_for_left_ones_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_YOUNG_S", -1.0)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with temporary_folder("own-"):
        (left := tmp_path / "own-left").mkdir()
    with temporary_folder("own-"), temporary_folder("others-"):
        assert left.exists()
    now += 61
    with temporary_folder("own-", str(tmp_path)):
        assert not left.exists()


SANDBOXED = """
import asyncio, sys
from headgate.core.errors import InvalidInputError
from headgate.durable import locks
from headgate.durable.files import private_folder
from headgate.environments.sandbox import Limits, Sandbox
locks._YOUNG_S = -1.0
asyncio.run(Sandbox().run(sys.argv[1], limits=Limits(wall_s=60.0, cpu_s=60)))
"""


@pytest.mark.slow
def test_the_next_run_removes_what_a_killed_one_left_of_its_sandbox(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SANDBOXED]
    with subprocess.Popen([*command, "import time\nwhile True: time.sleep(1)"]) as killed:
        deadline = time.monotonic() + 60
        while not (left := [*tmp_path.glob("headgate-sandbox-*")]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        killed.kill()
    subprocess.run([*command, "print(1)"], timeout=60, check=True)
    assert not any(folder.exists() for folder in left)


def test_a_private_folder_is_made_once_and_found_again(tmp_path: Path) -> None:
    folder = private_folder("engines")
    assert private_folder("engines") == folder == tmp_path / f"headgate-engines-{os.getuid()}"
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("trap", ["link", "writable", "file"])
def test_a_private_folder_that_somebody_else_laid_out_is_refused(trap: str, tmp_path: Path) -> None:
    place = tmp_path / f"headgate-engines-{os.getuid()}"
    (mine := tmp_path / "mine").mkdir()
    match trap:
        case "link":
            place.symlink_to(mine)
        case "writable":
            place.mkdir()
            place.chmod(0o777)
        case _:
            place.touch()
    with pytest.raises(InvalidInputError, match=f"must be a folder that only user {os.getuid()} may write in"):
        private_folder("engines")
