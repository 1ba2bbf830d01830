"""`headgate follow`, on a folder with two checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.cli import follow as command
from tests.cli.conftest import Command
from tests.run.test_follow import ENGINE


def test_the_curve_is_printed_and_kept(headgate: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run-7").mkdir()
    (tmp_path / "run-7" / "step_1").write_text("solver")
    (tmp_path / "run-7" / "step_2").write_text("greedy")
    follow = ["follow", "run-7", "--once", "--instances", "10", "--environment", "affine:sat", "--engine", "command"]
    follow += ["--command", ENGINE, "--option", "headgate_task_header=true", "--output", "curve.html"]
    said = headgate(*follow)
    assert said.status == 0
    assert "run-7@step_1" in said.out
    assert "2 checkpoints evaluated (every checkpoint is evaluated)" in said.out
    assert "<svg" in (tmp_path / "curve.html").read_text()
    told = headgate(*follow, "--json", "--newest", "1").document
    assert (told["best"], told["skipped"]) == (told["checkpoints"][0]["model"], 1)
    monkeypatch.setattr(command, "logs_are_hidden", lambda *_, **__: True)
    (tmp_path / "run-7" / "step_0").write_text("greedy")  # as of a training that began again at an earlier step
    said = headgate(*follow)
    assert "step 0, checkpoint run-7@step_0, mean" in " ".join((said.out + said.err).split())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--gpus", "0.5"), "it must be a whole number (got 0.5)"),
        (("--newest", "2.5"), "it must be a whole number (got 2.5)"),
        (("--instances", "0.6"), "it must be a whole number (got 0.6)"),
        (("--option", "temperature:0"), "--option takes name=value, or a name alone (got 'temperature:0')"),
        (("--engine-option", "max-model-len: 8"), "takes name=value, or a name alone (got 'max-model-len: 8')"),
    ],
)
def test_what_would_be_taken_for_something_else_is_refused(
    headgate: Command, given: tuple[str, str], says: str
) -> None:
    said = headgate("follow", "nowhere", "--once", *given)
    assert said.status == 2
    assert says in " ".join(said.err.replace("│", "").split())


def test_checkpoints_that_are_not_complete_are_named_at_the_end(headgate: Command, tmp_path: Path) -> None:
    (tmp_path / "run-8").mkdir()
    (tmp_path / "run-8" / "step_1").write_text("solver")
    follow = ["follow", "run-8", "--once", "--instances", "2", "--environment", "affine:sat", "--engine", "command"]
    said = headgate(*follow, "--command", ENGINE, "--marker", "DONE")
    assert said.status == 4
    assert "0 checkpoints evaluated (no checkpoint is in" in " ".join(said.out.split())
    assert "; not complete: step_1)" in " ".join(said.out.split())
