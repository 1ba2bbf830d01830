"""The sandbox holds: no network, files, processes or signals out of it, and every cost is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys
import threading
from pathlib import Path

import pytest

from headgate.core import errors
from headgate.environments import SANDBOX, Limits, Sandbox
from headgate.environments import sandbox as sandbox_module
from headgate.environments import sandbox_launcher as launcher
from headgate.environments.sandbox import Outcome
from headgate.environments.shares import MODEL, FairSlots
from headgate_environments.affine.codeio import data_path

LAUNCHER_SOURCE = Path(launcher.__file__).read_text()
ATTEMPT = """
def attempt(forbidden):
    try:
        forbidden()
    except OSError as error:
        print("refused", error.errno)
    else:
        print("allowed")
"""


def children():
    return Path(f"/proc/{os.getpid()}/task/{threading.main_thread().native_id}/children").read_text().split()


async def test_a_program_between_stdin_and_stdout_runs():
    run = await SANDBOX.run("import sys\nfor line in sys.stdin: print(line.strip()[::-1], 'ü')", "abc\nd\n")
    assert (run.outcome, run.exit_status, run.stdout, run.stderr) == (Outcome.OK, 0, "cba ü\nd ü\n", "")
    assert run.is_clean
    assert run.problem == ""


async def test_ordinary_modules_and_threads_work():
    program = """
import bisect, collections, csv, datetime, decimal, fractions, hashlib, itertools, json, math, re, statistics
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as pool:
    print(sum(pool.map(abs, range(-3, 1))), hashlib.sha256(b"").hexdigest()[:4], decimal.Decimal(1).sqrt())
exit()
"""
    run = await SANDBOX.run(program)
    assert run.stdout == "6 e3b0 1\n"
    assert run.is_clean


async def test_the_locks_were_tried_and_hold():
    assert "calls" in await SANDBOX.locks()


async def test_network_is_refused():
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        program = f"""{ATTEMPT}
import _socket
for family in (_socket.AF_INET, _socket.AF_INET6, _socket.AF_UNIX, 16, 17):
    attempt(lambda: _socket.socket(family, _socket.SOCK_STREAM))
attempt(lambda: _socket.socketpair())
import socket
attempt(lambda: socket.create_connection(("127.0.0.1", {port}), 1))
"""
        run = await SANDBOX.run(program)
    assert run.stdout == "refused 1\n" * 7
    assert run.outcome is Outcome.OK


async def test_files_cannot_be_written_made_or_removed(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    tmp_path.chmod(0o777)
    kept.chmod(0o666)
    program = f"""{ATTEMPT}
import os
kept, new = {str(kept)!r}, {str(tmp_path / "new")!r}
for mode in "war+", "w", "a", "r+", "x":
    attempt(lambda: os.open(kept, os.O_WRONLY))
attempt(lambda: open(kept, "w"))
attempt(lambda: os.open(kept, os.O_RDONLY | os.O_TRUNC))
attempt(lambda: os.open("here", os.O_RDONLY | os.O_CREAT))
attempt(lambda: os.remove(kept))
attempt(lambda: os.rename(kept, new))
attempt(lambda: os.mkdir(new))
attempt(lambda: os.symlink(kept, new))
attempt(lambda: os.truncate(kept, 0))
attempt(lambda: os.chmod(kept, 0))
attempt(lambda: os.utime(kept))
attempt(lambda: os.memfd_create("x"))
"""
    run = await SANDBOX.run(program)
    assert run.stderr == ""
    assert "allowed" not in run.stdout
    assert len(run.stdout.splitlines()) == 16
    assert kept.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [kept]


async def test_only_the_standard_library_can_be_read(tmp_path):
    if "files" not in await SANDBOX.locks():
        pytest.skip("this kernel has no Landlock")
    secret = tmp_path / "secret"
    secret.write_text("expected output")
    secret.chmod(0o666)
    paths = [str(secret), __file__, "/etc/hostname", f"/proc/{os.getpid()}/environ", "/proc/self/environ", os.devnull]
    run = await SANDBOX.run(f"{ATTEMPT}\nfor path in {paths!r}: attempt(lambda: open(path).read())")
    assert run.stdout == "refused 13\n" * 3 + "refused 2\n" * 2 + "allowed\n"


async def test_installed_packages_cannot_be_read():
    if "files" not in await SANDBOX.locks():
        pytest.skip("this kernel has no Landlock")
    run = await SANDBOX.run(f"{ATTEMPT}\nattempt(lambda: open({str(data_path())!r}, 'rb'))")
    assert run.stdout == "refused 13\n"


async def test_no_other_process_can_be_touched():
    program = f"""{ATTEMPT}
import os, resource, fcntl
parent = os.getppid()
attempt(lambda: os.kill({os.getpid()}, 0))
attempt(lambda: os.kill(parent, 9))
attempt(lambda: os.killpg(0, 0))
attempt(lambda: resource.prlimit({os.getpid()}, resource.RLIMIT_NOFILE, (1, 1)))
attempt(lambda: os.setpriority(os.PRIO_PROCESS, {os.getpid()}, 19))
attempt(lambda: fcntl.fcntl(1, fcntl.F_SETOWN, {os.getpid()}))
attempt(lambda: os.setsid())
"""
    run = await SANDBOX.run(program)
    assert run.stdout == "refused 1\n" * 7


async def test_a_fork_bomb_starts_nothing():
    program = f"""{ATTEMPT}
import os, subprocess
attempt(os.fork)
attempt(lambda: os.execv("/bin/true", ["true"]))
attempt(lambda: os.posix_spawn("/bin/true", ["true"], {{}}))
attempt(lambda: subprocess.run(["/bin/true"]))
"""
    run = await SANDBOX.run(program)
    assert run.stdout == "refused 1\n" * 4


async def test_a_memory_bomb_ends_at_its_limit():
    run = await SANDBOX.run("x = [b'x' * 1_000_000 for _ in range(10_000)]", limits=Limits(memory_bytes=100_000_000))
    assert run.outcome is Outcome.MEMORY
    assert "MemoryError" in run.problem


@pytest.mark.long  # one that ignores the limit is ended by the harder one behind it, below
async def test_an_endless_loop_ends_at_the_processor_limit():
    run = await SANDBOX.run("while True: pass", limits=Limits(cpu_s=1))
    assert run.outcome is Outcome.TIMEOUT


async def test_ignoring_the_processor_limit_does_not_help():
    program = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    run = await SANDBOX.run(program, limits=Limits(cpu_s=1))
    assert run.outcome is Outcome.TIMEOUT


async def test_a_sleeping_program_ends_at_the_wall_limit():
    run = await SANDBOX.run("import time\ntime.sleep(1000)", limits=Limits(wall_s=0.3))
    assert run.outcome is Outcome.TIMEOUT
    assert run.wall_s < 30


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_100_mb_of_output_are_not_kept(stream):
    program = f"import sys\nfor _ in range(100): sys.{stream}.write('x' * 1_000_000)"
    run = await SANDBOX.run(program, limits=Limits(output_bytes=200_000))
    assert run.outcome is Outcome.OUTPUT_LIMIT
    assert 200_000 <= len(run.stdout) + len(run.stderr) < 201_000


async def test_a_program_that_closes_its_streams_may_end_by_itself():
    run = await SANDBOX.run(
        "import os, time\nos.write(1, b'done')\nos.close(1)\nos.close(2)\ntime.sleep(0.05)\nos._exit(0)"
    )
    assert (run.outcome, run.stdout) == (Outcome.OK, "done")


async def test_output_that_is_not_utf8_is_replaced():
    run = await SANDBOX.run("import os\nos.write(1, b'a\\xff\\n')")
    assert run.stdout == "a\ufffd\n"


async def test_a_failing_program_says_why():
    run = await SANDBOX.run("1 / 0")
    assert (run.outcome, run.exit_status) == (Outcome.FAILED, 1)
    assert run.problem == "failed (exit status 1, ZeroDivisionError)"


async def test_of_what_a_failing_program_wrote_nothing_enters_the_reason():
    run = await SANDBOX.run("import sys\nsys.exit('sk-secret: \\x1b[31mZeroDivisionError')")
    assert "sk-secret" in run.stderr
    assert run.problem == "failed (exit status 1)"


async def test_a_crash_of_the_interpreter_is_a_failed_program():
    run = await SANDBOX.run("import ctypes\nctypes.string_at(0)")
    assert run.outcome is Outcome.FAILED
    assert run.exit_status < 0


async def test_a_surrogate_in_the_program_is_no_defect_of_ours():
    assert (await SANDBOX.run("print('\udcff')")).stdout == "?\n"


async def test_the_environment_tells_nothing(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    run = await SANDBOX.run("import os, sys\nprint(dict(os.environ), sys.argv)")
    assert "secret" not in run.stdout
    assert "headgate" not in run.stdout


async def test_sets_of_strings_have_the_same_order_in_every_run():
    program = "print({'alpha', 'beta', 'gamma', 'delta', 'epsilon'})"
    assert len({(await SANDBOX.run(program)).stdout for _ in range(4)}) == 1
    assert (await Sandbox(hash_seed=1).run(program)).stdout != (await SANDBOX.run(program)).stdout


async def test_a_cancelled_run_leaves_no_process_behind():
    running = asyncio.Event()
    real = sandbox_module._Watched.until_end

    async def told(watched, *arguments):
        running.set()
        return await real(watched, *arguments)

    await SANDBOX.locks()
    before = children()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox_module._Watched, "until_end", told)
        task = asyncio.create_task(SANDBOX.run("import time\ntime.sleep(1000)"))
        await running.wait()
        assert len(children()) == len(before) + 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert children() == before


async def test_no_zombie_and_no_folder_is_left(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = children()
    await asyncio.gather(*(SANDBOX.run(f"exit({status})") for status in range(6)))
    assert children() == before
    assert list(tmp_path.iterdir()) == []


async def test_no_more_programs_run_at_once_than_allowed(tmp_path):
    running, most = 0, 0
    real = sandbox_module._run

    async def counted(*arguments):
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await real(*arguments)
        finally:
            running -= 1

    sandbox = Sandbox(concurrency=2)
    await sandbox.locks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox_module, "_run", counted)
        await asyncio.gather(*(sandbox.run("print(1)") for _ in range(6)))
    assert most == 2


@pytest.fixture
def impatient(monkeypatch):
    """Four slots, which are wanted back at once."""
    monkeypatch.setattr(sandbox_module, "_PATIENCE_S", 0.0)
    return Sandbox(concurrency=4)


SLEEPING = "import time\ntime.sleep(1000)"
LONG = Limits(wall_s=1000)


def begun(sandbox, model, program, limits=LONG):
    async def run():
        MODEL.set(model)
        return await sandbox.run(program, limits=limits)

    return asyncio.create_task(run())


async def ended(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("program", [SLEEPING, "while True: pass"])
async def test_programs_of_one_model_run_beside_others_whose_programs_do_not_end(program, impatient):
    await impatient.locks()
    hostile = [begun(impatient, f"hostile-{number % 3}", program) for number in range(36)]
    runs = await asyncio.gather(*(begun(impatient, "ordinary", "print(1)") for _ in range(5)))
    assert [run.stdout for run in runs] == ["1\n"] * 5
    assert not any(task.done() for task in hostile)
    await ended(hostile)


async def test_a_program_whose_slot_was_wanted_back_runs_again_from_its_beginning(impatient):
    await impatient.locks()
    sleepers = [begun(impatient, "a", SLEEPING) for _ in range(2)]
    runs = [begun(impatient, "a", "import time\nprint(1)\ntime.sleep(0.3)\nprint(2)") for _ in range(2)]
    while len(children()) < 4:  # noqa: ASYNC110 - programs start, which nobody tells
        await asyncio.sleep(0)
    others = [begun(impatient, "b", "print(3)") for _ in range(3)]
    assert [run.stdout for run in await asyncio.gather(*others, *runs)] == ["3\n"] * 3 + ["1\n2\n"] * 2
    await ended(sleepers)


async def test_what_a_program_waits_for_a_processor_does_not_count_as_its_time(monkeypatch):
    monkeypatch.setattr(sandbox_module, "_waited_s", lambda process: 1000.0)
    run = await SANDBOX.run("import time\ntime.sleep(0.5)\nprint(1)", limits=Limits(wall_s=0.3))
    assert (run.outcome, run.stdout) == (Outcome.OK, "1\n")


async def test_programs_of_a_model_that_holds_more_than_others_go_after_theirs(monkeypatch):
    await SANDBOX.locks()
    seen = []
    real = sandbox_module._Watched._yield_to_others

    def told(watched):
        real(watched)
        with contextlib.suppress(ProcessLookupError):
            seen.append(os.getpriority(os.PRIO_PROCESS, watched._process.pid))

    monkeypatch.setattr(sandbox_module._Watched, "_yield_to_others", told)
    monkeypatch.setattr(sandbox_module, "_TICK_S", 0.01)
    await SANDBOX.run("import time\ntime.sleep(0.1)")
    assert not seen, "it is alone"
    monkeypatch.setattr(FairSlots, "is_heavy", lambda slots, model: True)
    await SANDBOX.run("import time\ntime.sleep(0.1)")
    assert set(seen) == {min(os.getpriority(os.PRIO_PROCESS, 0) + 15, 19)}


def test_one_sandbox_serves_several_event_loops():
    async def crowd():
        return await asyncio.gather(*(SANDBOX.run("print(1)") for _ in range(4)))

    for _ in range(2):
        assert [run.stdout for run in asyncio.run(crowd())] == ["1\n"] * 4


async def test_where_the_locks_cannot_be_closed_nothing_runs(monkeypatch, tmp_path):
    broken = tmp_path / "launcher.py"
    broken.write_text(LAUNCHER_SOURCE.replace('"x86_64": (0', '"nothing": (0').replace('"aarch64": (1', '"none": (1'))
    monkeypatch.setattr(sandbox_module, "_LAUNCHER", broken)
    with pytest.raises(errors.SandboxUnavailableError, match="no system-call filter for machine type"):
        await Sandbox().run("print(1)")


async def test_locks_that_do_not_hold_are_noticed(monkeypatch, tmp_path):
    broken = tmp_path / "launcher.py"
    broken.write_text(LAUNCHER_SOURCE.replace("    filter_calls(libc, machine)\n", ""))
    monkeypatch.setattr(sandbox_module, "_LAUNCHER", broken)
    with pytest.raises(errors.SandboxUnavailableError, match="do not hold"):
        await Sandbox().run("print(1)")


async def test_other_systems_are_refused_with_a_sentence(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(errors.SandboxUnavailableError, match="'darwin'"):
        await Sandbox().run("print(1)")


async def test_a_program_cannot_pretend_that_it_was_never_run():
    run = await SANDBOX.run("import os\nos.write(2, b'OSError: no seccomp')\nos._exit(1)")
    assert run.outcome is Outcome.FAILED


@pytest.fixture
def without(monkeypatch, tmp_path):
    """A machine that lacks some of the locks; returns a sandbox on it that asks for no more than there are."""

    def lacking(*locks):
        source = LAUNCHER_SOURCE
        for lock, condition in (("namespaces", "enter_namespaces(libc)"), ("files", "confine_files(libc, readable)")):
            source = source.replace(f"if {condition}:", "if False:") if lock in locks else source
        launcher_file = tmp_path / "launcher.py"
        launcher_file.write_text(source)
        monkeypatch.setattr(sandbox_module, "_LAUNCHER", launcher_file)
        sandbox = Sandbox()
        sandbox.require(set(sandbox_module.LOCKS) - set(locks))
        return sandbox

    return lacking


@pytest.mark.parametrize("missing", [("files",), ("namespaces",), ("namespaces", "files")])
async def test_a_machine_that_lacks_a_lock_runs_no_program_unless_the_setting_says_so(without, missing):
    willing = without(*missing)
    strict = Sandbox()
    with pytest.raises(errors.SandboxUnavailableError, match=missing[0]) as refused:
        await strict.run("print(1)")
    held = ",".join(lock for lock in sandbox_module.LOCKS if lock not in missing)
    assert f"HEADGATE_SANDBOX_LOCKS={held}" in refused.value.next_step
    assert (await willing.run("print(1)")).stdout == "1\n"
    assert willing.not_held == missing


@pytest.mark.parametrize("missing", [("files",), ("namespaces",), ("namespaces", "files")])
async def test_variables_and_memory_of_the_worker_cannot_be_read_behind_fewer_locks(without, missing):
    sandbox = without(*missing)
    paths = [f"/proc/{os.getpid()}/environ", f"/proc/{os.getpid()}/mem"]
    program = f"{ATTEMPT}\nfor path in {paths!r}: attempt(lambda: open(path, 'rb').read(1))"
    run = await sandbox.run(program)
    assert run.is_clean
    assert "allowed" not in run.stdout
    assert len(run.stdout.splitlines()) == 2


async def test_behind_namespaces_no_process_is_to_be_seen(without):
    run = await without("files").run("import os\nprint(os.listdir('/proc'))")
    assert run.stdout == "[]\n"


def decision(machine, call, *arguments, pid=77, own_architecture=True):
    """Run the filter as the kernel would: what it decides on `call`, an error number or "allow" or "kill"."""
    architecture = launcher.ARCHITECTURES[machine][1] if own_architecture else 0x40000003
    data = struct.pack("=iIQ6Q", call, architecture, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    code = list(struct.iter_unpack("=HBBI", launcher.seccomp_program(machine, pid)))
    accumulator, position = 0, 0
    while True:
        operation, jump_true, jump_false, k = code[position]
        position += 1
        if operation == launcher.LD_W_ABS:
            (accumulator,) = struct.unpack_from("=I", data, k)
        elif operation == launcher.RET:
            return {launcher.ALLOW: "allow", launcher.KILL: "kill"}.get(k, k & 0xFFFF)
        else:
            holds = {
                launcher.JEQ: accumulator == k,
                launcher.JGE: accumulator >= k,
                launcher.JSET: bool(accumulator & k),
            }[operation]
            position += jump_true if holds else jump_false


# name: (x86_64, aarch64), arguments, decision; numbers as in the kernel's asm/unistd.h
DECISIONS = [
    ((0, 63), (), "allow"),  # read
    ((1, 64), (), "allow"),  # write
    ((41, 198), (), 1),  # socket
    ((53, 199), (), 1),  # socketpair
    ((42, 203), (), 1),  # connect
    ((59, 221), (), 1),  # execve
    ((62, 129), (), 1),  # kill
    ((200, 130), (), 1),  # tkill
    ((234, 131), (77,), "allow"),  # tgkill, own
    ((234, 131), (78,), 1),  # tgkill, another
    ((56, 220), (0x00010000 | 0x100,), "allow"),  # clone, a thread
    ((56, 220), (17,), 1),  # clone, a process
    ((435, 435), (), 38),  # clone3
    ((425, 425), (), 1),  # io_uring_setup
    ((101, 117), (), 1),  # ptrace
    ((257, 56), (0, 0, 0o2000000), "allow"),  # openat for reading
    ((257, 56), (0, 0, 1), 13),  # openat for writing
    ((257, 56), (0, 0, 2), 13),  # openat for both
    ((257, 56), (0, 0, 0o100), 13),  # openat that creates
    ((257, 56), (0, 0, 0o1000), 13),  # openat that truncates
    ((437, 437), (), 38),  # openat2
    ((72, 25), (1, 1), "allow"),  # fcntl F_GETFD
    ((72, 25), (1, 8), 1),  # fcntl F_SETOWN
    ((302, 261), (0,), "allow"),  # prlimit64, own
    ((302, 261), (1,), 1),  # prlimit64, another
    ((263, 35), (), 1),  # unlinkat
    ((9999, 9999), (), 38),  # newer than the filter
]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_decides_alike_on_both_machines(machine):
    column, *_ = launcher.ARCHITECTURES[machine]
    for calls, arguments, expected in DECISIONS:
        assert decision(machine, calls[column], *arguments) == expected, (calls, arguments)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_of_another_architecture_end_the_program(machine):
    assert decision(machine, 0, own_architecture=False) == "kill"


def test_calls_of_the_x32_abi_end_the_program():
    assert decision("x86_64", 0x40000000 + 41) == "kill"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_short_enough_for_the_kernel(machine):
    assert len(launcher.seccomp_program(machine, 1)) // 8 < 4096
