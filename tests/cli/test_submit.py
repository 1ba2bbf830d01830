"""`headgate submit`: what would be sent, what is refused before it is queued, and names that never become shell."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.cli.submit.slurm import _seconds
from tests.cli.conftest import Command

RUN = ("--", "run", "--roster", "roster.yaml", "--instances", "5")
KUBERNETES = ("kubernetes", "--image", "registry/headgate:1", "--volume", "claim", "--dry-run")


def _program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.mark.usefixtures("roster")
def test_what_cannot_be_used_is_refused_in_a_sentence_before_it_is_queued(headgate: Command) -> None:
    for row, says in {
        (
            "slurm",
            "--time",
            "1",
            *RUN,
        ): "--time 1 leaves a link less than a minute to work: it is told to end 80 s before",
        ("slurm", "--time", "soon", *RUN): "--time takes minutes, H:MM:SS or D-HH:MM (got 'soon')",
        ("slurm", "--links", "0", *RUN): "--links must be >= 1 (got 0)",
        ("slurm", "--shared", "--option=gpu", *RUN): "--option takes one of sbatch's",
        (
            "slurm",
            *RUN,
            "--journal",
            "/dev/shm/journal",
        ): "--journal /dev/shm/journal is local to this machine",
        ("slurm",): "after `--` comes the evaluation (got 'nothing')",
        ("slurm", "--", "report"): "after `--` comes the evaluation (got 'report')",
        ("slurm", *RUN[:-2]): "`run` without --instances samples by rates and never ends",
        ("slurm", *RUN, "--instance", "4"): "does not take these options: Unknown option: --instance",
        ("slurm", *RUN, "--campaign", "a b"): "campaign 'a b' is not a usable name",
        ("slurm", *RUN, "--store", "a\nb"): "an option must be one line of text",
        (*KUBERNETES, *RUN, "--journal", "/tmp/journal"): "--journal /tmp/journal is not on the volume",
        (*KUBERNETES, *RUN, "--store", "../samples"): "--store /var/lib/samples is not on the volume",
    }.items():
        said = headgate("submit", *row)
        assert (said.status, said.out) == (2, ""), row
        assert says in said.err, (row, said.err)


@pytest.mark.usefixtures("roster")
def test_without_a_cluster_there_is_a_sentence_and_with_one_its_own_words(
    headgate: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert "there is no sbatch on this machine" in headgate("submit", "slurm", "--shared", *RUN).err
    assert "there is no kubectl on this machine" in headgate("submit", *KUBERNETES[:-1], *RUN).err
    _program(tmp_path / "bin", "kubectl", "echo 'the server does not answer' >&2; exit 1")
    said = headgate("submit", *KUBERNETES[:-1], *RUN)
    assert (said.status, "kubectl refuses it: the server does not answer" in said.err) == (2, True)


def test_a_link_passes_the_signal_on_and_only_an_end_that_another_link_would_not_change_ends_the_chain(
    headgate: Command, roster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / 'it\'s $(touch here); "a folder"'
    odd.mkdir()
    roster.rename(odd / "my roster.yaml")
    monkeypatch.chdir(odd)
    environment = "affine:ded,affine:[as]*"
    evaluation = ["run", "--roster", "my roster.yaml", "--instances", "5", "-e", environment]
    sent = headgate("submit", "slurm", "--shared", "--links", "3", "--dry-run", "--", *evaluation).out
    first, _, script = sent.partition(" <<'END_OF_LINK'\n")
    options = shlex.split(first)
    assert options[0] == "sbatch"
    assert {"--array=1-3%1", "--time=4:00:00", "--signal=B:TERM@80", f"--chdir={odd}"} <= set(options)
    programs = tmp_path / "bin"
    _program(programs, "python", 'echo "$@" >ran; trap "exit 130" TERM; kill -TERM $PPID; while :; do sleep 0.05; done')
    _program(programs, "scancel", "echo $@ >cancelled")
    command = next(line for line in script.splitlines() if line.endswith(" &"))
    assert shlex.split(command)[1:-1] == ["-m", "headgate.cli", *evaluation]
    link = script.removesuffix("END_OF_LINK\n").replace(shlex.split(command)[0], str(programs / "python"))
    variables = {"PATH": f"{programs}:/usr/bin:/bin", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}

    def status_of(text: str) -> int:
        return subprocess.run(["bash"], input=text, text=True, env=variables, cwd=odd, check=False).returncode

    assert (status_of(link), (odd / "cancelled").exists()) == (130, False)
    assert (odd / "ran").read_text().startswith("-m headgate.cli run --roster my roster.yaml")
    for status, ends in {0: True, 2: True, 3: False, 4: True, 137: False}.items():
        _program(programs, "python", f"exit {status}")
        assert status_of(link) == status
        assert (odd / "cancelled").exists() == ends
        (odd / "cancelled").unlink(missing_ok=True)
    assert sorted(path.name for path in odd.iterdir()) == ["my roster.yaml", "ran"]


def test_time_limits_are_read_as_slurm_reads_them() -> None:
    limits = {"90": 5400, "5:30": 330, "4:00:00": 14_400, "2-6": 194_400, "1-0:30": 88_200, "1-00:00:10": 86_410}
    assert {time: _seconds(time) for time in limits} == limits


@pytest.mark.usefixtures("roster")
def test_a_job_brings_its_table_of_prices_and_its_limits(headgate: Command) -> None:
    for name in ("prices.yaml", "limits.yaml"):
        Path(name).write_text(f"{name} itself")
    words = (*RUN, "--prices", "prices.yaml", "--limits", "limits.yaml")
    files, _ = yaml.safe_load_all(headgate("submit", *KUBERNETES, *words).out)
    assert list(files["stringData"].values())[1:] == ["prices.yaml itself", "limits.yaml itself"]


@pytest.mark.usefixtures("roster")
def test_a_job_goes_on_after_pods_that_were_told_to_end_and_brings_its_files(headgate: Command) -> None:
    further = ("--namespace", "eval", "--secret", "keys", "--links", "4")
    words = (
        *RUN,
        "-e",
        "affine:*",
        "--campaign",
        "Team/A_1",
        "--set",
        "drain_timeout_s=30",
        "--set",
        "judge_model=$(X)",
    )
    files, job = yaml.safe_load_all(headgate("submit", *KUBERNETES, *further, *words).out)
    assert (files["kind"], job["kind"], job["apiVersion"]) == ("Secret", "Job", "batch/v1")
    assert {one["metadata"]["name"] for one in (files, job)} == {"headgate-team-a-1"}
    assert {one["metadata"]["namespace"] for one in (files, job)} == {"eval"}
    spec: dict[str, Any] = job["spec"]
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (3, "Failed")
    fails, evicted = spec["podFailurePolicy"]["rules"]
    assert (fails["action"], fails["onExitCodes"]["values"]) == ("FailJob", [1, 2, 4])
    assert (evicted["action"], evicted["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 90)
    (container,) = pod["containers"]
    assert container["command"][:4] == ["headgate", "run", "--roster", "roster.yaml"]
    assert container["command"][-1] == "judge_model=$$(X)"  # which Kubernetes reads as $(X)
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    home, roster = container["volumeMounts"]
    assert container["workingDir"] == home["mountPath"] == "/var/lib/headgate"
    assert (roster["mountPath"], roster["subPath"]) == ("/var/lib/headgate/roster.yaml", "file-0")
    assert "alpha" in files["stringData"]["file-0"]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "claim"}
