"""What artifacts show: keys, rows and sentences."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.status import CampaignStatus, ModelStatus, PairStatus, QueueStatus, WorkerStatus
from headgate.orchestration.run_state import artifact_key
from headgate.orchestration.sampling_run import MAX_ROWS, progress_sentence, score_rows

PAIR = PairStatus("m@main", "affine:sat", 12, 10, 9, 1, 4.5, 28_800.4, 0.0)
MODEL = ModelStatus(
    0, "m@main", "m", "main", False, None, None, 1.0, 100.0, {}, {"affine:sat": 1234}, 0, 0, None, None, 1, 2
)  # fmt: skip
STATUS = CampaignStatus(
    "main", 10.0, 0.0, "running", (MODEL,), (PAIR,),
    QueueStatus(3, 1, 100, 50, 80, 30, False, 10, 7, 10, 7, {"affine:sat": 3}),
    WorkerStatus(20, 4, 10, 10, 9.0, 10.0, 0.2, 0.9),
    2, 8, 10, 4,
)  # fmt: skip


@given(st.lists(st.text(max_size=20), min_size=1, max_size=3))
def test_a_key_is_one_that_prefect_takes(parts: list[str]) -> None:
    try:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", artifact_key(*parts))
    except ValueError:
        assert not re.search(r"[a-z0-9]", "".join(parts).lower())


def test_an_environment_is_recognised_in_its_key() -> None:
    assert artifact_key("scores", "affine:sat-hard") == "scores-affine-sat-hard"


def test_a_row_has_its_numbers_formatted() -> None:
    assert score_rows(STATUS) == [
        {
            "model": "m@main",
            "samples": "10",
            "scored": "9",
            "mean": "0.500",
            "missing": "10.0 %",
            "errors": "1",
            "per day": "28,800",
            "24 h": "1,234",
            "state": "sampled",
        }
    ]


def test_environments_stand_in_the_rows_where_there_are_several() -> None:
    rows = score_rows(replace(STATUS, pairs=(PAIR, replace(PAIR, environment="affine:abd"))))
    assert [row["environment"] for row in rows] == ["affine:sat", "affine:abd"]


def test_the_share_of_missing_scores_stands_in_the_rows_where_any_is_missing() -> None:
    whole = replace(PAIR, scored=10)
    assert "missing" not in score_rows(replace(STATUS, pairs=(whole,)))[0]
    rows = score_rows(replace(STATUS, pairs=(whole, replace(PAIR, scored=6), replace(PAIR, done=0, scored=0))))
    assert [row["missing"] for row in rows] == ["0.0 %", "40.0 %", ""]


def test_nothing_scored_is_no_mean_of_zero() -> None:
    (row,) = score_rows(replace(STATUS, pairs=(replace(PAIR, scored=0, score_sum=0.0),)))
    assert row["mean"] == ""


def test_a_paused_model_says_why() -> None:
    paused = replace(MODEL, is_paused=True, pause_reason="service errors (pause 1)")
    (row,) = score_rows(replace(STATUS, models=(paused,)))
    assert row["state"] == "paused: service errors (pause 1)"
    assert "1 models, 1 paused" in progress_sentence(replace(STATUS, models=(paused,)))


def test_a_model_that_has_left_keeps_its_row() -> None:
    (row,) = score_rows(replace(STATUS, models=()))
    assert row["state"] == "left the roster"


@pytest.mark.parametrize("pairs", [MAX_ROWS - 1, MAX_ROWS, MAX_ROWS + 1, 5 * MAX_ROWS])
def test_a_table_stays_small(pairs: int) -> None:
    assert len(score_rows(replace(STATUS, pairs=(PAIR,) * pairs))) == min(pairs, MAX_ROWS)


def test_the_sentence_says_where_the_campaign_stands() -> None:
    sentence = progress_sentence(STATUS)
    for part in ("running", "9 of 10 samples scored", "4 of 20 workers busy", "4 queued", "8 stored, 2 spooled"):
        assert part in sentence
