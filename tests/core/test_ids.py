"""Ids are the same on every machine; names can be stored and shown anywhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import Task, checked_name, new_holder_id, new_trace_id, sample_task, seed_of, task_id_of, unit_hash
from headgate.core.errors import InvalidNameError

SMALL = "acme/small@main"
SAT = "affine:sat"

GOLDEN_IDS = """
from headgate.core import seed_of, task_id_of, unit_hash
print(task_id_of("acme/small@main", "affine:sat", 41, "sample", "main"))
print(seed_of("affine:sat", 41))
print(repr(unit_hash("headgate", "phase")))
"""


def _task(**changes: object) -> Task:
    given = {
        "campaign": "main",
        "model": SMALL,
        "environment": SAT,
        "sequence": 0,
        "data_length": 10,
        "due_at": 1.0,
    } | changes
    return sample_task(**given)  # type: ignore[arg-type]


def test_an_id_never_changes_between_versions() -> None:
    assert task_id_of(SMALL, SAT, 41, "sample", "main") == "t-6f860e373334a10c547cd26b"
    assert seed_of(SAT, 41) == 786_767_945
    assert unit_hash("headgate", "phase") == 0.8589985640274989


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_every_process_derives_the_same_ids(hash_seed: str) -> None:
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    shown = subprocess.run([sys.executable, "-c", GOLDEN_IDS], env=environ, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == [
        task_id_of(SMALL, SAT, 41, "sample", "main"),
        str(seed_of(SAT, 41)),
        repr(unit_hash("headgate", "phase")),
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"campaign": "second"},
        {"model": "acme/small@v2"},
        {"environment": "affine:abd"},
        {"sequence": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_part_of_a_tasks_identity_changes_its_id(other: dict[str, object]) -> None:
    assert _task().task_id != _task(**other).task_id


def test_neither_due_time_nor_weight_nor_data_length_changes_an_id() -> None:
    assert _task().task_id == _task(due_at=9.0, weight=4.0, data_length=7).task_id


def test_a_second_pass_over_the_data_is_new_work_on_the_same_tasks() -> None:
    first, second = _task(sequence=3), _task(sequence=13)
    assert (first.index, first.seed) == (second.index, second.seed) == (3, seed_of(SAT, 3))
    assert first.task_id != second.task_id


def test_two_models_get_the_same_seed_for_the_same_task() -> None:
    assert _task(sequence=5).seed == _task(sequence=5, model="acme/large@main").seed


@given(st.lists(st.tuples(*[st.text(max_size=4)] * 4, st.integers(0, 30)), unique=True, max_size=20))
def test_different_parts_give_different_ids(parts: list[tuple[str, str, str, str, int]]) -> None:
    named = [p for p in parts if not any("\0" in text for text in p[:4])]
    assert len({task_id_of(m, e, n, s, c) for m, e, s, c, n in named}) == len(named)


@given(st.text(), st.integers(0, 2**63))
def test_a_seed_fits_32_bits(environment: str, index: int) -> None:
    assert 0 <= seed_of(environment.encode(errors="replace").decode(), index) < 2**32


def test_unit_hashes_spread_evenly() -> None:
    values = [unit_hash("spread", str(i)) for i in range(2_000)]
    assert all(0 <= value < 1 for value in values)
    per_tenth = [sum(i / 10 <= value < (i + 1) / 10 for value in values) for i in range(10)]
    assert min(per_tenth) > 140
    assert max(per_tenth) < 260


@pytest.mark.parametrize("name", ["a", "affine:sat", "acme/Small-7B_v1.5@main", "0", "a+b", "x" * 200])
def test_a_usable_name_is_given_back_as_it_is(name: str) -> None:
    assert checked_name(name, "model name") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 201,
        "..",
        "a/../b",
        "/etc/passwd",
        ".hidden",
        "-rf",
        "a b",
        "a\n",
        "a\0b",
        "a\\b",
        "ä",
        "a;b",
        "~",
        "a%b",
    ],
)
def test_a_name_that_cannot_be_stored_safely_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(InvalidNameError, match="campaign") as refused:
        checked_name(name, "campaign")
    assert "1 to 200 letters" in str(refused.value)


def test_a_refused_name_of_any_length_makes_a_short_message() -> None:
    with pytest.raises(InvalidNameError) as refused:
        checked_name("x" * 10_000, "model name")
    assert len(refused.value.message) < 150


@given(st.text(max_size=210))
def test_an_accepted_name_holds_nothing_that_a_path_or_a_shell_would_read(name: str) -> None:
    try:
        checked_name(name, "name")
    except InvalidNameError:
        return
    assert name.isascii()
    assert name[0].isalnum()
    assert ".." not in name
    assert not set(name) & set(" \\\"'`$*?<>|;&()[]{}~%\n\r\t\0")


def test_holders_and_traces_are_told_apart() -> None:
    assert len({new_holder_id() for _ in range(1_000)}) == 1_000
    trace = new_trace_id()
    assert len(trace) == 32
    assert int(trace, 16) >= 0
    assert trace != new_trace_id()
