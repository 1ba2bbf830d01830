"""`headgate placement` on a real Ray of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

POOLS = """
pools:
- name: rlhf
  quota: {cpu: 4}
  reserved: [{cpu: 1}]
rules: {min_runtime_s: 0}
"""


COMMANDS = """
import contextlib, io, json, sys
from headgate.cli import main

for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(json.loads(line))
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""
"""One process for all commands: imports take longer than most of them."""


class Site:
    """A ledger that `headgate placement up` runs, and commands beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pools.yaml").write_text(POOLS)
        self.environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "RAY_ADDRESS": "",
        }
        self.up = subprocess.Popen(
            [sys.executable, "-m", "headgate.cli", "placement", "up", "--pools", str(folder / "pools.yaml")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environ,
        )
        assert self.up.stdout is not None
        said = ""
        while "The ledger is running" not in said:
            line = self.up.stdout.readline()
            assert line, said
            said += line
        self.commands = subprocess.Popen(
            [sys.executable, "-c", COMMANDS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environ,
            cwd=self.folder,
        )

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        assert self.commands.stdin is not None
        assert self.commands.stdout is not None
        self.commands.stdin.write(json.dumps(["placement", *words]) + "\n")
        self.commands.stdin.flush()
        return subprocess.CompletedProcess(words, *json.loads(self.commands.stdout.readline()))

    def close(self) -> None:
        for process in (self.commands, self.up):
            if process.poll() is None:
                process.kill()
            process.wait(60)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    running = None
    try:
        running = Site(folder)
        yield running
    finally:
        if running is not None:
            running.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_cluster_that_is_started_here_listens_on_loopback_alone(site: Site) -> None:
    mother = psutil.Process(site.up.pid)
    listening: set[str] = set()
    for process in (mother, *mother.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # gone meanwhile
            found = (one for one in process.net_connections(kind="inet") if one.status == psutil.CONN_LISTEN)
            listening |= {one.laddr.ip for one in found}
    assert {address.removeprefix("::ffff:") for address in listening} <= {"127.0.0.1", "::1"}
    assert listening


def test_a_command_streams_its_output_and_gives_its_exit_status(site: Site) -> None:
    said = site("submit", "--pool", "rlhf", "--cpus", "1", "--", "sh", "-c", "echo hello; pwd; exit 3")
    assert said.returncode == 3, said.stderr
    assert said.stdout.splitlines() == ["hello", str(site.folder)]


def test_a_class_runs_whose_module_only_the_submitter_has(site: Site) -> None:
    (site.folder / "mywork.py").write_text("class Work:\n    def run(self):\n        return 42\n")
    said = site("submit", "--pool", "rlhf", "mywork:Work", "--json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["results"] == [42]


def test_work_that_nobody_waits_for_is_shown_explained_and_taken_out(site: Site) -> None:
    assert site("submit", "--pool", "rlhf", "--request", "long", "--no-wait", "--", "sleep", "600").returncode == 0
    found = json.loads(site("status", "--json").stdout)
    assert [pool["name"] for pool in found["pools"]] == ["rlhf"]
    assert any(one["request_id"] == "long" for one in found["requests"])
    assert "long is" in site("why", "long").stdout
    assert "is cancelled" in site("cancel", "long").stdout


def test_status_shows_the_quota_in_use_and_why_work_waits_beside_a_free_group(site: Site) -> None:
    for name, cpus in (("hog", "3.5"), ("beside", "1")):
        command = ("--request", name, "--no-wait", "--", "sleep", "600")
        assert site("submit", "--pool", "rlhf", "--cpus", cpus, *command).returncode == 0
    (pool,) = json.loads(site("status", "--json").stdout)["pools"]
    assert (pool["quota"], pool["in_use"], pool["in_use_by"]["dynamic"]) == ("4 CPU", "3.5 CPU", "3.5 CPU")
    (told,) = pool["not_given"]
    assert told["request"] == "beside"
    assert any("-rlhf-r0-" in group for group in told["free_groups"])
    said = site("status").stdout
    assert "dynamic 3.5 CPU" in said
    assert told["because"] in said
    assert told["because"] in site("why", "beside").stdout
    assert site("cancel", "beside", "hog").returncode == 0


def test_an_id_that_is_known_is_joined_and_the_command_that_does_not_run_is_told(site: Site) -> None:
    line = ("submit", "--pool", "rlhf", "--request", "twice")
    assert site(*line, "--", "echo", "one").stderr.count("submitted before") == 0
    again = site(*line, "--", "echo", "two")
    assert (again.returncode, again.stdout) == (0, "one\n")
    assert "twice was submitted before and is done: this joins it" in again.stderr
    assert site(*line, "--no-wait", "--", "true").stdout == ""
    assert json.loads(site(*line, "--json", "--", "true").stdout)["new"] is False


def test_a_signal_ends_a_submission_with_the_status_of_a_shell_and_takes_its_work_out(site: Site) -> None:
    for number, why in ((signal.SIGTERM, "SIGTERM ended its driver"), (signal.SIGINT, "Ctrl-C ended its driver")):
        name = f"{number.name}-{uuid.uuid4().hex[:6]}"
        line = [sys.executable, "-m", "headgate.cli", "placement", "submit", "--pool", "rlhf", "--request", name]
        command = ["sh", "-c", "echo runs; sleep 600"]
        with subprocess.Popen(
            [*line, "--", *command], stdout=subprocess.PIPE, env=site.environ, cwd=site.folder
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"runs\n"
            process.send_signal(number)
            assert process.wait(60) == 128 + number
        for _ in range(600):
            said = site("why", name).stdout
            assert why in said, "from its first moment on"
            if "is stopping" not in said:
                break
            time.sleep(0.05)
        assert said == f"{name} is withdrawn: {why}\n"


def test_what_can_never_fit_and_what_is_not_known_end_with_a_sentence(site: Site) -> None:
    said = site("submit", "--pool", "rlhf", "--cpus", "100", "--", "true")
    assert (said.returncode, "cannot_fit" in said.stderr) == (2, True)
    said = site("submit", "--pool", "rlhf", "--gang", "100000000", "--", "true")
    assert (said.returncode, "--gang must be in [1, 256] (got 100000000)" in said.stderr) == (2, True)
    said = site("submit", "--pool", "nowhere", "--", "true")
    assert (said.returncode, "unknown_pool" in said.stderr) == (2, True)
    assert "There is no request" in site("why", "nobody").stderr
    said = site("cancel", "nobody")
    assert (said.returncode, "There is no request 'nobody'" in said.stderr) == (2, True)


def test_work_that_raises_shows_the_line_of_it(site: Site) -> None:
    (site.folder / "boom.py").write_text("class Boom:\n    def run(self):\n        raise ValueError('boom')\n")
    said = site("submit", "--pool", "rlhf", "boom:Boom")
    assert said.returncode == 1
    assert [line for line in said.stderr.splitlines() if line.endswith("in run")], said.stderr
    assert "failed: ValueError: boom\nRead the traceback" in said.stderr


def test_a_file_of_pools_is_answered_with_what_holds_now_and_what_waits_for_nodes(site: Site) -> None:
    (site.folder / "more.yaml").write_text(
        "pools: [{name: big, quota: {cpu: 90}, reserved: [{cpu: 60}]}]\nrules: {label_rules: {role: {a: [b]}}}\n"
    )
    said = site("apply", "more.yaml").stdout
    assert "the preemption rules are applied (label rules: role)" in said
    assert "reserved group 0 of pool big (60 CPU) fits on no node now" in said
    assert "used by others" in site("status").stdout
    assert site("close", "big").returncode == 0


def test_the_audit_of_a_whole_ledger_finds_nothing_and_its_end_leaves_no_process(site: Site) -> None:
    assert site("audit").returncode == 0
    site.up.send_signal(signal.SIGTERM)
    said, _ = site.up.communicate(timeout=90)
    assert site.up.returncode == 0, said
    assert site("status").returncode == 3


@pytest.mark.long
def test_up_ends_when_its_ledger_is_ended_by_somebody_else() -> None:
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    try:
        site = Site(folder)
        try:
            assert site("down").returncode == 0
            said, _ = site.up.communicate(timeout=90)
            assert (site.up.returncode, "stopped by someone else" in said) == (0, True), said
        finally:
            site.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
