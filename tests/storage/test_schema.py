"""The schema of a stored sample: what passes, what does not, and the reason that it is given."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import ErrorKind, Sample, checked_name, errors
from headgate.storage.schema import COLUMNS, FRAME_SCHEMA, frame_of, framed, sample_schema, validated
from tests.storage.samples import START, failed, many, sample


def _reason(bad: Sample) -> str:
    sifted = validated(frame_of([sample(0), bad, sample(2)]))
    assert sifted.good.height == 2
    return str(sifted.bad["reason"][0])


def test_the_columns_are_those_of_a_sample() -> None:
    assert len(COLUMNS) == 34
    assert frame_of([]).schema == FRAME_SCHEMA
    assert FRAME_SCHEMA["score"] == pl.Float64
    assert FRAME_SCHEMA["sequence"] == pl.Int64


def test_a_frame_holds_the_samples_in_their_order() -> None:
    samples = [*many(5), failed(5)]
    assert [Sample(**row) for row in frame_of(samples).iter_rows(named=True)] == samples


def test_good_rows_pass_unchanged() -> None:
    frame = frame_of([*many(5), failed(5), sample(6, error_kind="bad_answer", error="no number", score=0.0)])
    sifted = validated(frame)
    assert sifted.good.equals(frame)
    assert sifted.bad.height == 0
    assert sample_schema().validate(frame).equals(frame)


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_every_error_kind_passes_with_the_score_that_it_allows(kind: ErrorKind) -> None:
    score = 0.0 if kind.is_scored else None
    good = sample(1, error_kind=kind.value, error="said", score=score, success=False)
    assert validated(frame_of([good])).good.height == 1
    wrong = replace(good, score=None if kind.is_scored else 0.0)
    assert "score must be null exactly when error_kind is set and is none of bad_answer, budget" in _reason(wrong)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("task_id", "t-12", "task_id must be 't-' and 24 hex digits (got t-12)"),
        ("task_id", None, "task_id must be 't-' and 24 hex digits (got null)"),
        ("task_id", "t-" + "0" * 24 + "\n", "task_id must be"),
        ("campaign", "", "campaign must be a name"),
        ("model", "org/a", "with '@' in it (got org/a)"),
        ("environment", "a b", "environment must be a name"),
        ("environment", "../up", "environment must be a name"),
        ("environment", "a..b", "without '..' (got a..b)"),
        ("environment", "x" * 201, "environment must be a name of at most 200"),
        ("stage", None, "stage must be a name"),
        ("sequence", -1, "sequence must be >= 0 (got -1)"),
        ("index", -1, "index must be >= 0"),
        ("seed", -5, "seed must be >= 0"),
        ("score", 1.5, "score must be null or in [0, 1] (got 1.5)"),
        ("score", -0.01, "score must be null or in [0, 1]"),
        ("score", math.nan, "score must be null or in [0, 1] (got NaN)"),
        ("score", math.inf, "score must be null or in [0, 1]"),
        ("score", None, "score must be null exactly when error_kind is set"),
        ("success", None, "success must be set"),
        ("why", None, "why must be set"),
        ("error_kind", "bad_luck", "error_kind must be null or one of rate_limited"),
        ("started_at", 12.0, "started_at must be a time between the years 2000 and 2100"),
        ("finished_at", START * 1_000, "finished_at must be a time between"),
        ("finished_at", math.nan, "finished_at must be a time between"),
        ("finished_at", START - 200_000, "finished_at must be after started_at"),
        ("latency_s", -0.1, "latency_s must be a finite number >= 0 (got -0.1)"),
        ("latency_s", math.inf, "latency_s must be a finite number"),
        ("queue_wait_s", math.nan, "queue_wait_s must be a finite number"),
        ("request_wait_s", None, "request_wait_s must be a finite number"),
        ("prompt_tokens", -1, "prompt_tokens must be >= 0"),
        ("completion_tokens", -1, "completion_tokens must be >= 0"),
        ("turns", -1, "turns must be >= 0"),
        ("attempts", None, "attempts must be >= 0 (got null)"),
        ("trace_id", "xyz", "trace_id must be 32 hex digits"),
        ("conversation", None, "conversation must be set"),
        ("cached_tokens", -1, "cached_tokens must be >= 0"),
        ("reasoning_tokens", None, "reasoning_tokens must be >= 0 (got null)"),
        ("cost_micro", -1, "cost_micro must be null or >= 0 (got -1)"),
        ("judge_cost_micro", -1, "judge_cost_micro must be null or >= 0 (got -1)"),
        ("request_seed", -1, "request_seed must be null or >= 0 (got -1)"),
        ("lane", "soon", "lane must be now or batch (got soon)"),
    ],
)
def test_a_bad_value_is_refused_with_the_value_and_the_rule(column: str, value: Any, said: str) -> None:
    assert said in _reason(replace(sample(1), **{column: value}))


def test_success_without_a_score_is_refused() -> None:
    assert "success must be set, and false where nothing was scored" in _reason(failed(1, success=True))


def test_a_clock_that_was_set_back_a_little_is_no_bad_row() -> None:
    assert validated(frame_of([sample(1, started_at=START + 3_600)])).good.height == 1


def test_every_broken_rule_of_a_row_is_told() -> None:
    reason = _reason(sample(1, score=2.0, turns=-1, trace_id=""))
    assert [part.split(" must ")[0] for part in reason.split("; ")] == ["score", "turns", "trace_id"]


def test_a_long_value_is_cut_in_the_reason() -> None:
    assert len(_reason(sample(1, trace_id="x" * 10_000))) < 200


@pytest.mark.parametrize("off", [{"validation_enabled": False}, {"validation_depth": "SCHEMA_ONLY"}])
def test_the_door_stays_on_where_pandera_is_switched_off(off: dict[str, Any]) -> None:
    from pandera.config import config_context

    with config_context(**off):
        assert validated(frame_of([sample(1, score=2.0)])).bad.height == 1


def test_pandera_finds_the_same_bad_frame() -> None:
    from pandera.errors import SchemaErrors

    with pytest.raises(SchemaErrors, match="rules"):
        sample_schema().validate(frame_of([sample(1, score=2.0)]), lazy=True)


def test_a_frame_of_other_columns_is_refused_with_the_difference() -> None:
    frame = frame_of(many(1))
    with pytest.raises(errors.InvalidInputError, match=r"missing \['why'\]"):
        validated(frame.drop("why"))
    with pytest.raises(errors.InvalidInputError, match="score is Float32 and not Float64"):
        validated(frame.with_columns(pl.col("score").cast(pl.Float32)))
    with pytest.raises(errors.InvalidInputError, match="order"):
        validated(frame.select(reversed(COLUMNS)))


@pytest.mark.parametrize(
    "changes", [{"sequence": "3"}, {"why": "\ud800"}, {"seed": 2**70}, {"sequence": 3.7}, {"latency_s": object()}]
)
def test_a_value_that_fits_no_column_is_a_misfit_and_no_end_of_the_batch(changes: dict[str, Any]) -> None:
    bad = replace(sample(1), **changes)
    with pytest.raises(errors.InvalidInputError, match=f"does not fit the columns .*: {next(iter(changes))}: "):
        frame_of([bad])
    frame, misfits = framed([sample(0), bad, sample(2)])
    assert frame["sequence"].to_list() == [0, 2]
    assert [misfit for misfit, _ in misfits] == [bad]


@given(st.text(alphabet="aZ0._:@/+- \n\té\"'", max_size=12))
def test_names_pass_here_exactly_when_the_vocabulary_takes_them(name: str) -> None:
    try:
        checked_name(name, "environment")
    except errors.InvalidNameError:
        is_name = False
    else:
        is_name = True
    assert (validated(frame_of([sample(1, environment=name)])).good.height == 1) == is_name


@given(
    st.builds(
        sample,
        st.integers(0, 2**40),
        score=st.floats(0, 1),
        latency_s=st.floats(0, 1e9),
        why=st.text(st.characters(codec="utf-8"), max_size=20),
        conversation=st.text(st.characters(codec="utf-8"), max_size=20),
        at=st.floats(START, START + 1e8),
    )
)
def test_any_proper_sample_passes(proper: Sample) -> None:
    proper = replace(proper, started_at=proper.finished_at)
    sifted = validated(frame_of([proper]))
    assert sifted.bad.height == 0
    assert Sample(**sifted.good.row(0, named=True)) == proper
