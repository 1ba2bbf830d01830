"""`headgate placement simulate`: tables, JSON, a figure, and a sentence for what cannot be replayed."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.conftest import Command

HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
JOBS = [
    {"id": "low", "arrived_s": 0, "duration_s": 600, "gpus": 8, "priority": 2, "checkpoint_every_s": 60},
    {"id": "train", "arrived_s": 100, "duration_s": 60, "gpus": 8, "priority": 9, "labels": {"role": "train"}},
]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in JOBS))
    return path


def test_high_priority_work_waits_less_than_without_preemption(headgate: Command, jobs: Path) -> None:
    said = headgate("placement", "simulate", str(jobs), "--nodes", "1", "--json")
    assert said.status == 0
    found = {each["policy"]: each for each in said.document["policies"]}
    assert found["headgate"]["high"]["p95_s"] < 5
    assert found["strict FIFO"]["high"]["p95_s"] > 400
    assert (found["headgate"]["victims"], found["headgate"]["victims_done"]) == (1, 1)
    assert found["headgate"]["lost_gpu_s"] == pytest.approx(8 * 40, rel=0.02)
    assert said.document["cluster"] == "1 node of 8 GPUs, 128 CPUs, 1024 GiB"
    assert said.document["least_high_waiting_s"] == {"p50": 0, "p95": 0, "p99": 0}


def test_the_same_mix_gives_the_same_figures(headgate: Command) -> None:
    line = ("placement", "simulate", "--mix", "rlhf", "--hours", "2", "--nodes", "2", "--seed", "3", "--json")
    first, second = (headgate(*line).document for _ in range(2))
    for document in (first, second):
        for each in document["policies"]:
            each.pop("took_s")
            each.pop("cpu_ms")
    assert first == second
    assert len(first["policies"]) == 10


def test_tables_name_the_trace_the_cluster_and_what_was_assumed(headgate: Command, tmp_path: Path) -> None:
    rows = [f"p{n},4000,1024,1,1000,,{'LS' if n % 2 else 'BE'},Running,{n * 10},{n * 10 + 500},{n}" for n in range(40)]
    (tmp_path / "pods.csv").write_text("\n".join((HEAD, *rows)))
    said = headgate("placement", "simulate", "pods.csv", "--nodes", "1", "--policy", "headgate", "--policy", "fifo")
    assert said.status == 0
    for text in ("40 jobs on 1 node of", "LS 8", "a checkpoint every 600 s", "strict FIFO", "band 8", "No policy can"):
        assert text in said.out
    assert "clairvoyant:" not in said.out


@pytest.mark.long
def test_the_figure_is_an_svg_that_a_page_can_hold(headgate: Command, jobs: Path, tmp_path: Path) -> None:
    said = headgate("placement", "simulate", str(jobs), "--nodes", "1", "--output", "held.svg", "--json")
    assert Path(said.document["figure"]) == tmp_path / "held.svg"
    text = (tmp_path / "held.svg").read_text()
    assert ET.fromstring(text).tag.endswith("svg")
    assert "Which jobs held which GPUs" in text


def test_rules_of_a_file_decide_who_is_stopped(headgate: Command, jobs: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("same_pool_threshold: 20\ncross_pool_threshold: 20\n")
    line = ("placement", "simulate", str(jobs), "--nodes", "1", "--policy", "headgate", "--json")
    assert headgate(*line).document["policies"][0]["preemptions"] == 1
    assert headgate(*line, "--rules", "rules.yaml").document["policies"][0]["preemptions"] == 0
    (tmp_path / "pools.yaml").write_text("pools: []\nrules: {same_pool_threshold: 20, cross_pool_threshold: 20}\n")
    assert headgate(*line, "--rules", "pools.yaml").document["policies"][0]["preemptions"] == 0


def test_reserved_groups_are_kept_for_high_priorities(headgate: Command, jobs: Path) -> None:
    said = headgate(
        "placement",
        "simulate",
        str(jobs),
        "--nodes",
        "2",
        "--reserved",
        "gpus=8,cpus=8",
        "--policy",
        "headgate",
        "--json",
    )
    assert said.status == 0
    assert said.document["policies"][0]["preemptions"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give either a file of jobs or --mix"),
        (("jobs.jsonl", "--mix", "rlhf"), "give either a file of jobs or --mix"),
        (("none.jsonl",), "cannot be read"),
        (("none.csv",), "cannot be read"),
        (("jobs.txt",), "neither a .csv list of pods nor a .jsonl file"),
        (("--mix", "rlfh"), "there is no mix 'rlfh'"),
        (("--mix", "rlhf", "--load", "0"), "load in (0, 10]"),
        (("--mix", "rlhf", "--nodes", "0"), "at least 1 node (got 0)"),
        (("--mix", "rlhf", "--gpus", "-1"), "An amount of GPU must be a number >= 0"),
        (("--mix", "rlhf", "--reserved", "gpu=2"), "--reserved must have the form"),
        (("--mix", "rlhf", "--reserved", "gpus=x"), "--reserved must have the form"),
        (("jobs.jsonl", "--policy", "lifo"), "there is no policy 'lifo'"),
        (("jobs.jsonl", "--gpus", "4"), "job low takes 8 GPU, and no part of the empty cluster"),
        (("none.csv", "--restart-s", "-1"), "--restart-s must be a number >= 0"),
        (("jobs.jsonl", "--rules", "none.yaml"), "the rules none.yaml cannot be read"),
        (("jobs.jsonl", "--policy", "fifo", "--output", "jobs.jsonl/f.svg"), "cannot be written"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_a_sentence(
    headgate: Command, jobs: Path, arguments: tuple[str, ...], says: str
) -> None:
    said = headgate("placement", "simulate", *arguments)
    assert said.status == 2
    assert says in " ".join(said.err.split())
    assert "Traceback" not in said.err
