"""`headgate run` as a process that can be killed, and the proof of what it had acknowledged."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import psycopg

_ACCEPTED = re.compile(r"sample_accepted task_id=(\S+)")

_started: list[Run] = []


def end_all() -> None:
    """Kill what a test has started and left: a test that fails in the middle would leave runs that sample on."""
    for run in _started:
        if run.process.returncode is None:
            run.kill_after(0.0)
    _started.clear()


@dataclass
class Place:
    """Roster, journal and store of one campaign; outlives its processes."""

    folder: Path
    base_url: str
    store: str
    rates: str = "affine:sat=300000"
    settings: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)
    journal: str = ""  # postgresql://…; a folder otherwise
    models: str = ""  # entries of the roster; three baselines at `base_url` otherwise
    environment: str = "affine:sat"

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        entries = self.models or "\n".join(
            f"  - {{name: m{i}, base_url: '{self.base_url}', model: baseline-greedy, "
            "options: {headgate_task_header: true}}"
            for i in range(3)
        )
        (self.folder / "roster.yaml").write_text(f"models:\n{entries}\n")

    def start(
        self,
        *arguments: str,
        within: tuple[str, ...] = (),
        module: str = "headgate.cli",
        variables: dict[str, str] | None = None,
    ) -> Run:
        """Start a campaign, as the command of `within`; its acknowledgements are collected while it lives."""
        settings = (f"rates={self.rates}", "batch_flush_interval=0.1", "status_interval_s=1", *self.settings)
        command = [
            *within, sys.executable, "-m", module, "run", "-v",
            "--roster", str(self.folder / "roster.yaml"), "-e", self.environment,
            "--store", self.store, "--journal", self.journal or str(self.folder / "journal"),
            *(part for setting in settings for part in ("--set", setting)), *arguments,
        ]  # fmt: skip
        environ = {**os.environ, **self.variables, **(variables or {})}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environ)
        _started.append(Run(process, self.acknowledged))
        return _started[-1]

    def drain(self, seconds: float = 3) -> int:
        """Run the rest to its end: take over what is open, and store what is spooled. Returns the exit status."""
        # What a process on another machine left is free when its lease has ended, and found at the next look.
        seconds += 6 if self.journal else 0
        run = self.start("--duration", str(seconds), "--set", "low_sample_threshold=0")
        return run.wait()

    def assert_nothing_lost_or_doubled(self, samples: pl.DataFrame) -> None:
        """Every acknowledged sample is stored once, and no number of any model is missing or there twice."""
        stored = Counter(samples["task_id"].to_list())
        assert max(stored.values()) == 1
        lost = [task_id for task_id in self.acknowledged if task_id not in stored]
        assert not lost, f"{len(lost)} of {len(self.acknowledged)} acknowledged samples are not in the store"
        for (model,), rows in samples.group_by("model"):
            numbers = sorted(rows["sequence"].to_list())
            missing = set(range(numbers[-1] + 1)) - set(numbers)
            assert missing <= self._open_numbers(model), (model, sorted(missing)[:10])

    def _open_numbers(self, model: str) -> set[int]:
        """What the last process had given out when its window ended: open in the journal, not lost."""
        query = "SELECT sequence FROM open_tasks JOIN pairs USING (pair) WHERE model = "
        if self.journal:
            with psycopg.connect(self.journal, options="-c search_path=headgate_journal_main") as shared:
                return {row[0] for row in shared.execute(query + "%s", (model,))}
        with sqlite3.connect(next(self.folder.glob("journal/*/journal.db"))) as journal:
            rows = journal.execute(query + "?", (model,)).fetchall()
        journal.close()
        return {row[0] for row in rows}


@dataclass
class Run:
    """One process. Its standard error is read to the end, so that it never blocks on it."""

    process: subprocess.Popen[str]
    acknowledged: list[str]

    def __post_init__(self) -> None:
        self._news = threading.Condition()
        self.count = 0
        self.tail: list[str] = []
        self.store_failures = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := _ACCEPTED.search(line):
                self.acknowledged.append(found[1])
                with self._news:
                    self.count += 1
                    self._news.notify_all()
            else:
                self.tail = [*self.tail[-30:], line]
                with self._news:
                    self.store_failures += "store_failed batch_id=b-" in line
                    self._news.notify_all()

    def wait_for_samples(self, timeout_s: float = 300.0, *, at_least: int = 1) -> None:
        """Return when the first sample is acknowledged, or so many."""
        with self._news:
            assert self._news.wait_for(lambda: self.count >= at_least, timeout_s), "".join(self.tail)

    def wait_for_a_failure_of_the_store(self, timeout_s: float = 60.0) -> None:
        """Return when the store has refused a batch."""
        with self._news:
            assert self._news.wait_for(lambda: self.store_failures, timeout_s), "".join(self.tail)

    def kill_after(self, seconds: float) -> None:
        """Let it run for `seconds`, then kill it as an operator or the kernel does."""
        time.sleep(seconds)
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def wait(self, timeout_s: float = 90.0) -> int:
        """Return the exit status when it has ended."""
        status = self.process.wait(timeout_s)
        self._reader.join(10)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return status
