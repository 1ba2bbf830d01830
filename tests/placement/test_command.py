"""Commands as placed work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headgate.placement.cluster import command
from headgate.placement.cluster.command import CommandWork
from headgate.placement.cluster.occupant import PlacementContext
from headgate.placement.errors import InvalidPlacementError


def _python(program: str, **variables: str) -> CommandWork:
    return CommandWork([sys.executable, "-c", program], variables)


def test_a_command_ends_with_its_status_and_the_tail_of_its_output() -> None:
    ended = _python("import sys; print('one'); print('two', file=sys.stderr, flush=True); sys.exit(3)").run()
    assert ended.status == 3
    assert set(ended.tail) == {"one", "two"}


def test_a_command_sees_the_variables_that_it_was_given() -> None:
    assert _python("import os; print(os.environ['HEADGATE_RANK'])", HEADGATE_RANK="2").run().tail == ("2",)


def test_what_cannot_be_started_has_the_status_of_a_shell() -> None:
    ended = CommandWork(["no-such-program-anywhere"], {}).run()
    assert ended.status == 127
    assert "cannot be started" in ended.tail[0]


def test_no_command_is_refused() -> None:
    with pytest.raises(InvalidPlacementError, match="no command"):
        CommandWork([], {})


def test_output_is_read_from_any_line_on_and_the_oldest_kept_when_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "KEPT_LINES", 3)
    work = _python("for n in range(5): print(n)")
    work.run()
    assert work.lines(0).lines == ("2", "3", "4")
    assert work.lines(4).lines == ("4",)
    assert work.lines(5) == command.Output((), 5)


def test_a_line_of_any_length_is_kept_whole_in_parts_that_fit_into_memory() -> None:
    ended = _python("print('x' * 20_000); print('end')").run()
    assert "".join(ended.tail[:-1]) == "x" * 20_000
    assert max(map(len, ended.tail)) <= 8_192
    assert (ended.tail[-1], ended.lines) == ("end", 4)


def test_a_command_that_is_told_to_end_ends_by_its_signal() -> None:
    work = _python("import time; print('ready', flush=True); time.sleep(60)")
    ended: list[command.CommandEnded] = []
    thread = threading.Thread(target=lambda: ended.append(work.run()))
    thread.start()
    while not work.lines(0).lines:
        threading.Event().wait(0.005)
    work.cancel()
    thread.join(timeout=30)
    assert ended[0].status == 143


def test_a_command_that_is_told_to_end_before_it_began_does_not_begin() -> None:
    work = CommandWork(["no-such-program-anywhere"], {})
    work.cancel()
    assert work.run().status == 143


def test_bytes_that_are_no_text_do_not_end_the_reading() -> None:
    ended = _python(r"import sys; sys.stdout.buffer.write(b'\xff\xfe\nlast\n')").run()
    assert ended.tail[-1] == "last"


def test_a_command_runs_in_its_folder_and_knows_which_member_of_which_request_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "placement_context", lambda: PlacementContext("train", 1, 2, 3, False))
    program = "import os; print(os.getcwd(), *(os.environ[f'HEADGATE_{n}'] for n in 'REQUEST ATTEMPT RANK'.split()))"
    ended = CommandWork([sys.executable, "-c", program], {}, str(tmp_path)).run()
    assert ended.tail == (f"{tmp_path.resolve()} train 3 1",)


def test_a_folder_that_the_node_does_not_have_is_no_reason_to_fail(tmp_path: Path) -> None:
    assert CommandWork([sys.executable, "-c", ""], {}, str(tmp_path / "nowhere")).run().status == 0


@pytest.mark.parametrize("first", ["", "exec >/dev/null 2>&1; sleep 0.2; "], ids=["", "with its output elsewhere"])
def test_what_a_command_started_ends_with_its_host_however_that_dies(tmp_path: Path, first: str) -> None:
    started = tmp_path / "started"
    command = ["sh", "-c", f"{first}sleep 300 & echo $! >{started}; wait"]
    program = f"from headgate.placement.cluster.command import CommandWork; CommandWork({command!r}, {{}}).run()"
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as host:
        # Host, shell, sleep, and a guard with its parent.
        while _size_of_group(host.pid) < 5 or not (started.exists() and started.read_text().endswith("\n")):
            assert host.poll() is None
            threading.Event().wait(0.01)
        os.kill(host.pid, signal.SIGSTOP)
        subprocess.run(["pkill", "-KILL", "-P", str(host.pid)], check=True)  # as Ray does with a worker that ends
        host.kill()
    while _is_running(int(started.read_text())):
        threading.Event().wait(0.01)


def test_nothing_of_a_command_that_has_ended_is_left_to_others_to_reap() -> None:
    program = """
import ctypes, os
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: it gets what loses its parent
from headgate.placement.cluster.command import CommandWork
CommandWork(["true"], {}).run()
print(os.waitpid(-1, 0))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ChildProcessError" in ended.stderr, ended.stdout


def _size_of_group(leader: int) -> int:
    return len(subprocess.run(["pgrep", "-g", str(leader)], stdout=subprocess.PIPE, check=False).stdout.split())


def _is_running(pid: int) -> bool:
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], stdout=subprocess.PIPE, check=False)
    return told.stdout[:1] not in b"Z"
