"""The list of pods of a production cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.placement.amounts import GPU, MEMORY
from headgate_replay.placement import InvalidTraceError, at_load, cluster_of, read_openb

HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def pods(folder: Path, *rows: str, head: str = HEAD) -> Path:
    path = folder / "pods.csv"
    path.write_text("\n".join((head, *rows)) + "\n")
    return path


def row(name: str, created: int, deleted: int, *, gpus: int = 1, share: int = 1000, qos: str = "LS") -> str:
    return f"{name},4000,1024,{gpus},{share},,{qos},Running,{created},{deleted},{created}"


def test_a_pod_becomes_a_job_of_its_life_and_class(tmp_path: Path) -> None:
    path = pods(tmp_path, row("a", 100, 160), row("b", 130, 140, share=460, qos="BE"), row("c", 150, 151, gpus=8))
    a, b, c = read_openb(path, checkpoint_every_s=30, restart_s=5).jobs
    assert (a.job_id, a.arrived_s, a.duration_s, a.priority, a.kind) == ("a", 0.0, 60.0, 8.0, "LS")
    assert (b.arrived_s, b.priority, b.size.get(GPU), b.size.get(MEMORY)) == (30.0, 2.0, 460, 1024 * 2**20)
    assert (c.size.get(GPU), c.checkpoint_every_s, c.restart_s) == (8000, 30, 5)


def test_the_empty_start_of_the_list_is_cut_and_that_is_told(tmp_path: Path) -> None:
    early = [row("ended", 0, 10), row("still-there", 1, 2_000_000)]
    path = pods(tmp_path, *early, *(row(f"p{n}", 1_000_000 + n, 1_000_100 + n) for n in range(998)))
    found = read_openb(path)
    assert len(found.jobs) == 999
    assert found.jobs[0].job_id == "still-there"
    assert found.jobs[0].arrived_s == 0
    assert found.jobs[0].duration_s == 2_000_000 - 1_000_002
    assert "1 pods that had ended" in found.notes[0]


def test_long_lived_pods_are_left_out_only_when_asked(tmp_path: Path) -> None:
    path = pods(tmp_path, row("short", 0, 100), row("service", 0, 90_000))
    assert len(read_openb(path).jobs) == 2
    found = read_openb(path, longest_s=3600)
    assert [job.job_id for job in found.jobs] == ["short"]
    assert any("1 pods that lived longer than 1 h" in note for note in found.notes)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ((row("a", 0, 10), row("b", 20, 10)), r"line 3: deletion_time must be creation_time or later \(got '10'\)"),
        ((row("a", 0, 10, qos="Gold"),), "qos must be one of Guaranteed, LS, Burstable, BE"),
        ((row("a", 0, 10, gpus=-1),), r"num_gpu must be a whole number >= 0 \(got '-1'\)"),
        (("a,4000,x,1,1000,,LS,Running,0,10,0",), r"memory_mib must be a whole number >= 0 \(got 'x'\)"),
        (("a,0,0,0,0,,LS,Running,0,10,0",), "num_gpu must be > 0 where cpu_milli and memory_mib are 0"),
        ((row("a", 0, 10), row("a", 1, 10)), "two jobs have the id 'a'"),
        ((), "has no job"),
    ],
)
def test_a_list_that_cannot_be_right_is_refused_with_its_line(tmp_path: Path, rows: tuple[str, ...], says: str) -> None:
    with pytest.raises(InvalidTraceError, match=says):
        read_openb(pods(tmp_path, *rows))


def test_a_file_with_other_columns_is_told_what_it_lacks(tmp_path: Path) -> None:
    path = pods(tmp_path, "a,1,1,1,0,1", head="name,cpu_milli,memory_mib,gpu_milli,creation_time,deletion_time")
    with pytest.raises(InvalidTraceError, match="lacks the columns num_gpu, qos"):
        read_openb(path)


def test_a_file_that_is_not_there_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidTraceError, match="cannot be read") as caught:
        read_openb(tmp_path / "none.csv")
    assert "https://github.com/alibaba/clusterdata" in caught.value.next_step


def test_an_empty_file_and_one_of_bytes_are_no_lists(tmp_path: Path) -> None:
    for content in (b"", b"\xff\xfe\x00"):
        (tmp_path / "odd.csv").write_bytes(content)
        with pytest.raises(InvalidTraceError):
            read_openb(tmp_path / "odd.csv")


def test_jobs_of_the_middle_arrive_as_fast_as_a_load_asks_for(tmp_path: Path) -> None:
    trace = read_openb(pods(tmp_path, *(row(f"p{n}", 1_000 * n, 1_000 * n + 500) for n in range(10))))
    found = at_load(trace, cluster_of(1), jobs=4, load=0.5)
    assert [job.job_id for job in found.jobs] == ["p3", "p4", "p5", "p6"]
    assert sum(job.gpus * job.duration_s for job in found.jobs) / found.jobs[-1].arrived_s == pytest.approx(0.5 * 8)
    assert "work for 50% of 8 GPUs" in found.notes[-1]


def test_jobs_that_arrive_at_once_have_no_load_to_change(tmp_path: Path) -> None:
    trace = read_openb(pods(tmp_path, row("a", 0, 100), row("b", 0, 100)))
    with pytest.raises(InvalidTraceError, match="have no load"):
        at_load(trace, cluster_of(1), jobs=2, load=0.5)
