"""Commands as workers: what each end of a command means for its job."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from headgate.core.errors import InvalidInputError
from headgate.durable.files import written_beside
from headgate.jobqueue.errors import MachineUnfitError, StaleLeaseError
from headgate.jobqueue.worker import (
    CommandJobs,
    CommandRules,
    NotInAJobError,
    ReserveMode,
    Worker,
    reserve_from_environment,
    results,
)
from tests.jobqueue.worker.queue_site import QueueSite
from tests.processes.alive import is_alive

RESULT = 'printf \'{"q_score": {"final": 0.5}}\' > $HEADGATE_RESULT_FILE'


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


async def work(site: QueueSite, command: list[str], *, count: int = 1, **rules: Any) -> None:
    async with asyncio.timeout(60), site.async_client() as client, Worker(client, name="w", count=count) as worker:
        jobs = CommandJobs(CommandRules(command, grace_s=1, **rules))
        await worker.run(jobs, stop_when_empty=True)


async def failed(site: QueueSite, command: list[str], *, max_attempts: int = 1, **rules: Any) -> str:
    site.submit("1", max_attempts=max_attempts)
    await work(site, command, **rules)
    job = await asyncio.to_thread(site.job, "1")
    assert job.state == "dead"
    return str(job.last_error)


async def test_a_command_completes_its_job_with_what_it_writes(site: QueueSite, tmp_path: Path) -> None:
    site.submit("1", payload='{"seed":7}', instance="turning_3_template-tro_state.json")
    said = tmp_path / "said.json"
    await work(site, shell(f"cp $HEADGATE_JOB_FILE {said}; {RESULT}"))
    job = await asyncio.to_thread(site.job, "1")
    assert (job.state, job.result, job.result_ref) == ("done", {"q_score": {"final": 0.5}}, "")
    document = json.loads(said.read_text())
    assert (document["id"], document["task"], document["payload"]) == ("1", "t", {"seed": 7})


async def test_results_become_files_with_provenance_and_checksum(site: QueueSite, tmp_path: Path) -> None:
    site.submit("1", instance="turning_3_template-tro_state.json")
    await work(site, shell(RESULT), results_dir=tmp_path / "results")
    path = tmp_path / "results/a/metrics/t_3.json"
    document = json.loads(path.read_text())
    job = await asyncio.to_thread(site.job, "1")
    assert document["q_score"] == {"final": 0.5}
    assert document["provenance"]["job_id"] == "1"
    assert document["provenance"]["epoch"] == 1
    assert document["provenance"]["worker"] == "w"
    assert job.result_ref == str(path)
    assert job.checksum.startswith("sha256:")


async def test_a_result_of_another_job_is_never_overwritten(site: QueueSite, tmp_path: Path) -> None:
    path = tmp_path / "a/metrics/t_1.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"q_score": 1}')
    began = tmp_path / "began"
    command = shell(f"touch {began}; {RESULT}")
    assert "another job's result" in await failed(site, command, results_dir=tmp_path, max_attempts=3)
    assert not began.exists(), "that is known before the work begins"
    assert path.read_text() == '{"q_score": 1}'


def full(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file be written below a folder while it holds a file `full`."""

    def written(target: Path, data: bytes) -> Path:
        if (disk / "full").exists() and disk in target.parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written_beside(target, data)

    monkeypatch.setattr(results, "written_beside", written)


async def test_a_disk_that_fills_up_ends_the_worker_and_charges_no_job(
    site: QueueSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(tmp_path, monkeypatch)
    for id_ in ("1", "2", "3"):
        site.submit(id_, instance=id_, max_attempts=1)
    with pytest.raises(MachineUnfitError, match="No space left on device"):
        await work(site, shell(f"{RESULT}; touch {tmp_path}/full"), count=2, results_dir=tmp_path / "results")
    jobs = [await asyncio.to_thread(site.job, id_) for id_ in ("1", "2", "3")]
    assert [(job.state, job.failures) for job in jobs] == [("pending", 0)] * 3
    with pytest.raises(MachineUnfitError, match="No space left on device"):
        await work(site, shell(RESULT), results_dir=tmp_path / "results")
    (tmp_path / "full").unlink()
    await work(site, shell(RESULT), results_dir=tmp_path / "results")
    jobs = [await asyncio.to_thread(site.job, id_) for id_ in ("1", "2", "3")]
    assert [job.state for job in jobs] == ["done"] * 3


async def test_a_worker_on_a_full_disk_says_so_once_and_goes_on_when_there_is_room(
    site: QueueSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full(tmp_path, monkeypatch)
    monkeypatch.setattr("headgate.jobqueue.worker.worker.UNFIT_S", 0.05)
    jobs = CommandJobs(CommandRules(shell(RESULT), grace_s=1, results_dir=tmp_path / "results"))
    (tmp_path / "full").touch()
    for id_ in ("1", "2"):
        site.submit(id_, instance=id_, max_attempts=1)
    async with asyncio.timeout(60), site.async_client() as client, Worker(client, name="w", count=2) as worker:
        working = asyncio.create_task(worker.run(jobs, idle_s=2))
        while (await asyncio.to_thread(site.job, "1")).epoch < 4:  # noqa: ASYNC110 - the queue does not tell
            await asyncio.sleep(0.02)
        (tmp_path / "full").unlink()
        await working
    done = [await asyncio.to_thread(site.job, id_) for id_ in ("1", "2")]
    assert [(job.state, job.failures) for job in done] == [("done", 0)] * 2
    assert sum("No space left on device" in line for line in caplog.messages if "tried again every" in line) == 1


async def test_a_job_that_fills_the_disk_itself_is_charged(
    site: QueueSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as own:  # of a short path, as a socket needs it
        monkeypatch.setattr(tempfile, "tempdir", own)

        def written(target: Path, data: bytes) -> Path:
            if any(Path(own).glob("*/result.json")):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return written_beside(target, data)

        monkeypatch.setattr(results, "written_beside", written)
        assert "No space left" in await failed(site, shell(RESULT), results_dir=tmp_path / "results")


async def test_a_folder_that_is_gone_charges_no_job(
    site: QueueSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.submit("1", max_attempts=1)
    log_dir = tmp_path / "logs"
    rules = CommandRules(shell(RESULT), log_dir=log_dir)
    log_dir.rmdir()
    log_dir.touch()
    async with site.async_client() as client, Worker(client, name="w") as worker:
        with pytest.raises(MachineUnfitError, match=f"{log_dir}: File exists"):
            await worker.run(CommandJobs(rules), stop_when_empty=True)
    job = await asyncio.to_thread(site.job, "1")
    assert (job.state, job.failures) == ("pending", 0)


async def test_a_machine_without_room_for_a_command_charges_no_job(
    site: QueueSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    site.submit("1", max_attempts=1)
    monkeypatch.setattr(tempfile, "mkdtemp", no_room)
    with pytest.raises(MachineUnfitError, match="no command can be run here: No space left on device"):
        await work(site, shell(RESULT))
    job = await asyncio.to_thread(site.job, "1")
    assert (job.state, job.failures) == ("pending", 0)


async def test_a_command_that_no_machine_could_run_fails_its_own_job(site: QueueSite) -> None:
    site.submit("1", max_attempts=1)
    await work(site, [sys.executable, "-c", "pass", "x" * 200_000])
    job = await asyncio.to_thread(site.job, "1")
    assert (job.state, "Argument list too long" in str(job.last_error)) == ("dead", True)


async def test_code_that_publishes_on_a_full_disk_leaves_its_loop_and_charges_no_job(
    site: QueueSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(tmp_path, monkeypatch)
    (tmp_path / "full").touch()
    site.submit("1", max_attempts=1)

    async def loop(worker: Worker) -> None:
        async for held in worker.jobs(stop_when_empty=True):
            async with held:
                await results.publish(held, tmp_path / "results", {"q_score": 1})

    async with site.async_client() as client, Worker(client, name="w") as worker:
        with pytest.raises(MachineUnfitError, match="No space left"):
            await loop(worker)
    job = await asyncio.to_thread(site.job, "1")
    assert (job.state, job.failures) == ("pending", 0)


@pytest.mark.parametrize("rule", ["results_dir", "log_dir"])
def test_a_folder_that_cannot_be_written_is_found_out_before_any_job_is_charged(tmp_path: Path, rule: str) -> None:
    (tmp_path / "file").touch()
    rules: dict[str, Any] = {rule: tmp_path / "file/x"}
    with pytest.raises(InvalidInputError, match=r"nothing can be written to the folder .*file/x: Not a directory"):
        CommandRules(["sh"], **rules)


async def test_a_result_that_is_refused_leaves_no_file(site: QueueSite, tmp_path: Path) -> None:
    site.submit("1")
    path = tmp_path / "a/metrics/t_1.json"
    jobs = CommandJobs(CommandRules(shell(RESULT), results_dir=tmp_path))
    async with site.async_client() as client, Worker(client) as worker:
        job = await worker.claim()
        assert job is not None
        complete = job.complete

        async def withdrawn_first(*args: Any, **more: Any) -> None:
            assert path.exists()
            await client.withdraw("1")
            await complete(*args, **more)

        job.complete = withdrawn_first  # type: ignore[method-assign]
        with pytest.raises(StaleLeaseError):
            await jobs(job)
    assert not path.exists()


async def test_a_crash_fails_the_attempt_with_the_end_of_the_output(site: QueueSite) -> None:
    error = await failed(site, shell("echo before; echo 'no GPU' >&2; exit 3"))
    assert error == "the command ended with exit status 3; the end of its output:\nbefore\nno GPU"


async def test_a_signal_is_named(site: QueueSite) -> None:
    assert "was ended by SIGSEGV; it printed nothing" in await failed(site, shell("kill -SEGV $$"))


async def test_a_program_that_disappears_fails_the_attempt(site: QueueSite, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("")
    program.chmod(0o700)
    rules = CommandRules([str(program)], grace_s=1)
    program.unlink()
    site.submit("1", max_attempts=1)
    async with asyncio.timeout(60), site.async_client() as client, Worker(client, name="w") as worker:
        await worker.run(CommandJobs(rules), stop_when_empty=True)
    assert "program: No such file or directory" in (await asyncio.to_thread(site.job, "1")).last_error


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", "wrote no result"),
        ("echo '{' > $HEADGATE_RESULT_FILE", "is not JSON"),
        ("echo '[1]' > $HEADGATE_RESULT_FILE", "must be a JSON object (got list)"),
        ("echo '{\"x\": NaN}' > $HEADGATE_RESULT_FILE", "NaN"),
        ("mkdir $HEADGATE_RESULT_FILE", "cannot be read"),
        ("mkfifo $HEADGATE_RESULT_FILE", "cannot be read: it is not a regular file"),
        ("ln -s /dev/zero $HEADGATE_RESULT_FILE", "cannot be read: it is not a regular file"),
        ("cd ${HEADGATE_RESULT_FILE%/*}; rm output.log; mkfifo output.log", "wrote no result"),
    ],
)
async def test_success_without_a_result_is_a_failure(site: QueueSite, script: str, said: str) -> None:
    assert said in await failed(site, shell(script))


async def test_a_result_that_is_too_large_for_the_queue_is_no_result(site: QueueSite) -> None:
    script = "import json,os; json.dump({'x': 'y'*300_000}, open(os.environ['HEADGATE_RESULT_FILE'], 'w'))"
    assert "must be at most 262144 bytes" in await failed(site, python(script))


async def test_a_command_that_hangs_is_stopped(site: QueueSite) -> None:
    assert "did not end within 0.5 s" in await failed(site, shell("sleep 100"), timeout_s=0.5)


async def test_a_command_that_ignores_sigterm_is_killed(site: QueueSite) -> None:
    script = (
        "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
    )
    assert "did not end within 1 s" in await failed(site, python(script), timeout_s=1)


async def test_much_output_is_kept_in_the_log_and_only_its_end_in_the_error(site: QueueSite, tmp_path: Path) -> None:
    script = "import sys\nfor _ in range(100): sys.stdout.write('x' * 2**20)\nprint('\\nthe end'); sys.exit(1)"
    error = await failed(site, python(script), log_dir=tmp_path / "logs")
    assert error.endswith("\nthe end")
    assert len(error) <= 4_000
    assert (tmp_path / "logs/1.1.log").stat().st_size > 100 * 2**20


async def test_output_that_is_no_text_is_shown_as_far_as_it_is(site: QueueSite) -> None:
    error = await failed(site, shell(r"printf 'a\377b\000c\033[31mred\033[0m\n10%%\r 90%%\n'; exit 1"))
    assert error.partition("output:\n")[2] == "a\ufffdbcred\n 90%"


async def test_secrets_in_the_output_are_masked(site: QueueSite) -> None:
    error = await failed(site, shell("echo api_key=sk-abcdefgh12345678; exit 1"))
    assert "abcdefgh" not in error


async def test_processes_that_a_command_leaves_behind_end_with_it(site: QueueSite, tmp_path: Path) -> None:
    site.submit("1")
    pid_file = tmp_path / "pid"
    await work(site, shell(f"sleep 300 & echo $! > {pid_file}; {RESULT}"))
    await asyncio.to_thread(site.until, lambda: not is_alive(int(pid_file.read_text())))
    assert (await asyncio.to_thread(site.job, "1")).state == "done"


async def test_a_poison_job_is_dead_after_its_attempts_with_its_last_error(site: QueueSite) -> None:
    site.submit("1", max_attempts=3)
    await work(site, shell("echo attempt $HEADGATE_JOB_ATTEMPT; exit 1"))
    job = await asyncio.to_thread(site.job, "1")
    assert (job.state, job.epoch, job.failures) == ("dead", 3, 3)
    assert job.last_error.endswith("attempt 3")


async def test_a_command_gets_no_token_of_the_queue(site: QueueSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_JOBQUEUE_TOKEN", "hgq_token")
    monkeypatch.setenv("JOB_QUEUE_URL", "http://user:pass@nowhere")
    monkeypatch.setenv("HEADGATE_RESOURCE_HOST", "left over")
    assert "QUEUE=[] TOKEN=[] HOST=[]" in await failed(
        site,
        shell("echo QUEUE=[$JOB_QUEUE_URL] TOKEN=[$HEADGATE_JOBQUEUE_TOKEN] HOST=[$HEADGATE_RESOURCE_HOST]; exit 1"),
    )


async def test_with_before_a_command_starts_with_its_server(site: QueueSite) -> None:
    site.register()
    site.submit("1", pool="p", max_attempts=1)
    script = "echo $HEADGATE_RESOURCE_HOST:$HEADGATE_RESOURCE_PORT $HEADGATE_RESOURCE_INDEX $HEADGATE_RESOURCE_EPOCH"
    await work(site, shell(f"{script}; exit 1"), reserve=ReserveMode.BEFORE)
    job = await asyncio.to_thread(site.job, "1")
    assert job.last_error.endswith("127.0.0.1:9000 0 1")


async def test_a_server_is_asked_for_only_when_the_simulator_is_loaded(site: QueueSite, tmp_path: Path) -> None:
    """Two jobs, one server: both load at once, and the second gets the server when the first is done."""
    site.register()
    site.submit("1", "2", pool="p")
    events = tmp_path / "events"
    script = f"""
import json, os, time
from headgate.jobqueue.worker import reserve_from_environment
def note(what): open({str(events)!r}, "a").write(what + "\\n")
note("loaded")
while open({str(events)!r}).read().count("loaded") < 2: time.sleep(0.02)
server = reserve_from_environment()
assert server == reserve_from_environment()
note(f"got {{server.index}} epoch {{server.epoch}}")
json.dump({{"index": server.index}}, open(os.environ["HEADGATE_RESULT_FILE"], "w"))
"""
    await work(site, python(script), count=2)
    assert events.read_text().split("\n") == ["loaded", "loaded", "got 0 epoch 1", "got 0 epoch 2", ""]
    assert {(await asyncio.to_thread(site.job, job_id)).state for job_id in "12"} == {"done"}


async def test_a_command_may_wait_for_a_server_for_a_time(site: QueueSite, tmp_path: Path) -> None:
    site.register()
    site.submit("1", "2", pool="p", max_attempts=1)
    script = """
from headgate.jobqueue.worker import reserve_from_environment
print(reserve_from_environment(timeout_s=0.2))
import sys, time; sys.stdout.flush(); time.sleep(1); sys.exit(1)
"""
    await work(site, python(script), count=2)
    errors = [(await asyncio.to_thread(site.job, job_id)).last_error for job_id in "12"]
    assert sum("NoServerError" in error or "got no policy server within 0.2 s" in error for error in errors) == 1


def test_outside_of_a_job_nothing_can_be_reserved() -> None:
    with pytest.raises(NotInAJobError, match="HEADGATE_WORKER_SOCKET"):
        reserve_from_environment(environ={})


def test_a_program_that_is_not_there_is_found_out_before_any_job_is_charged(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    for program in ("no-such-program", str(plain), str(tmp_path)):
        with pytest.raises(InvalidInputError, match="must be there and executable") as caught:
            CommandRules([program])
        assert program in str(caught.value)


@pytest.mark.parametrize("rules", [{"command": []}, {"command": ["sh"], "timeout_s": 0.0}])
def test_rules_that_cannot_be_kept_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        CommandRules(**rules)


KEEPER = [sys.executable, "-I", "-S", "lib/headgate/processes/keeper.py", "--leased"]


def test_a_keeper_ends_its_command_when_the_lease_runs_out_although_the_worker_stands_still() -> None:
    keeper = subprocess.Popen([*KEEPER, "1", *shlex.split("sleep 300")], stdin=subprocess.PIPE)
    assert keeper.stdin is not None
    keeper.stdin.write(b"0.2\n")
    keeper.stdin.flush()
    assert keeper.wait(20) == -15
    keeper.stdin.close()


@pytest.mark.parametrize("command", ["sh -c 'exit 7'", "sleep 300"])
def test_a_keeper_does_its_work_where_the_system_has_less_to_offer(command: str) -> None:
    like_macos = "import os, runpy, sys; del os.waitid; sys.platform = 'darwin'"
    bare = f"{like_macos}; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    run = [sys.executable, "-I", "-S", "-c", bare, *KEEPER[-2:], "1", *shlex.split(command)]
    with subprocess.Popen(run, stdin=subprocess.PIPE) as keeper:
        assert keeper.stdin is not None
        if "exit" not in command:
            keeper.stdin.close()
        assert keeper.wait(20) == (7 if "exit" in command else -15)


def test_a_keeper_ends_its_command_when_the_worker_is_gone() -> None:
    keeper = subprocess.Popen([*KEEPER, "1", *shlex.split("sleep 300")], stdin=subprocess.PIPE)
    assert keeper.stdin is not None
    keeper.stdin.close()
    assert keeper.wait(20) == -15


def test_what_a_command_put_into_a_session_of_its_own_ends_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    escape = f"setsid sh -c 'echo $$ > {pid_file}.part; mv {pid_file}.part {pid_file}; exec sleep 300' & wait"
    with subprocess.Popen([*KEEPER, "1", "sh", "-c", escape], stdin=subprocess.PIPE) as keeper:
        while not pid_file.exists():
            time.sleep(0.02)
        assert keeper.stdin is not None
        keeper.stdin.close()
        assert keeper.wait(20) == -15
    assert not is_alive(int(pid_file.read_text()))
