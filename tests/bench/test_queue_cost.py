"""A cycle of the ready queue costs what it did, beside the sorted scan: a ratio of CPU time of one process, no time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.tiny import EASY, bench

SIZE = ("groups=8,64", "backlog=1000", "tasks=250", "iterations=40", "rival_cpu_s=0.001")
"""Forty turns of each contender, one after the other: their median says the same under any load, to within a tenth."""

MOST = {"P3.beside": 2.6, "P3.beside_borrow": 3.1}
"""Three tenths more than it was when this was written: 2.0 and 2.4."""


def test_a_cycle_of_the_queue_costs_no_more_of_the_sorted_scan_s_best_case_than_it_did(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    least = dict.fromkeys(MOST, float("inf"))
    for _ in range(3):  # whatever else the machine does, it does not do it three times to one side alone
        _, printed = bench(capsys, tmp_path, "queue", *SIZE, *EASY["queue"])
        found = {bar["id"]: bar["value"] for bar in printed["bars"]}
        least = {name: min(value, found[name]) for name, value in least.items()}
        if all(least[name] <= most for name, most in MOST.items()):
            return
    pytest.fail(f"a cycle of the queue costs {least} x that of the sorted scan's best case, not at most {MOST}")
