"""`headgate submit slurm` on a real SLURM: a chain goes on after links that are warned, and killed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.slurm.cluster import HEADGATE, Array, announced, until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

TASKS = 40


def _headgate(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HEADGATE, *words], cwd=folder, capture_output=True, text=True, check=False)


def _log(array: Array, link: int) -> str:
    path = array.folder / f"headgate-{array.array_id}_{link}.log"
    return path.read_text() if path.exists() else ""


def _has_samples(array: Array, link: int) -> None:
    until(lambda: _log(array, link).count("sample_accepted") >= 3)


def test_a_chain_goes_on_over_warned_and_killed_links_and_takes_every_sample_once(tmp_path: Path) -> None:
    folder = tmp_path / "it's a $(touch here); folder"
    folder.mkdir()
    with announced("serve-baselines", "--port", "0", "--faults", "slow:mean_s=0.3", log=tmp_path / "served.log") as url:
        (folder / "my roster.yaml").write_text(
            f"defaults: {{base_url: '{url}/v1', options: {{headgate_task_header: true}}}}\n"
            "models: [{name: solver, model: baseline-solver}]\n"
        )
        evaluation = ["run", "-v", "--roster", "my roster.yaml", "-e", "affine:ded", "--instances", str(TASKS)]
        evaluation += ["--workers", "1", "--set", "drain_timeout_s=5"]
        said = _headgate(folder, "submit", "slurm", "--shared", "--links", "6", "--", *evaluation)
        assert "is queued: at most 6 links of 4:00:00" in said.stdout, said.stderr
        array = Array(said.stdout.split()[0], folder)
        _has_samples(array, 1)
        warned = ["scancel", "--batch", "--signal=TERM", f"{array.array_id}_1"]  # what SLURM does before the time limit
        subprocess.run(warned, capture_output=True, check=False)  # it may complain that the link has ended
        _has_samples(array, 2)
        array.cancel(2, "--full", "--signal=KILL")
        until(lambda: not array.running())
        states = array.states()
        assert (states[1], states[3]) == ("FAILED", "COMPLETED")
        assert "CANCELLED" in states.values()  # the rest of the chain, of which nothing was left
        assert "link 1 of 6: headgate ended with status 130" in _log(array, 1)
        assert "link 3 of 6: headgate ended with status 0" in _log(array, 3)
        counted = "SELECT count(*) AS samples, count(DISTINCT index) AS tasks, count(score) AS scored FROM stored"
        (row,) = json.loads(_headgate(folder, "query", counted, "--json").stdout)
        assert row == {"samples": TASKS, "tasks": TASKS, "scored": TASKS}
        accepted = [_log(array, link).count("sample_accepted") for link in (1, 2, 3)]
        assert (sum(accepted), min(accepted) >= 3) == (TASKS, True)
    assert not (folder / "here").exists()


def test_sbatch_refuses_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "roster.yaml").write_text("models: [{name: alpha, base_url: 'http://127.0.0.1:9/v1'}]\n")
    evaluation = ["--", "run", "--roster", "roster.yaml", "--instances", "1"]
    said = _headgate(tmp_path, "submit", "slurm", "--shared", "--option=--partition=nowhere", *evaluation)
    assert said.returncode == 2
    assert "sbatch refuses it: sbatch: error: invalid partition specified: nowhere" in said.stderr
