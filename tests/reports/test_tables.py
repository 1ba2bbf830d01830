from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from headgate.core import ErrorKind, Secret, errors
from headgate.reports import SERVED, build_leaderboard, leaderboard_document, leaderboard_view, served_notes
from headgate.reports.report import (
    PROVIDER_ERRORS,
    checked_samples,
    error_table,
    leaderboard_table,
    missing_table,
    summary_table,
)
from tests.reports.factories import START, frame, lost, row


def table(make, *rows):
    return make(checked_samples(frame(*rows))).to_dicts()


def test_the_summary_takes_means_and_latency_over_the_scored_only():
    (line,) = table(
        summary_table,
        row(1, score=1.0, latency_s=2.0),
        row(2, score=0.0, success=False, latency_s=4.0, error_kind="bad_answer", error="no answer block"),
        lost(3, latency_s=600.0),
    )
    assert (line["samples"], line["scored"], line["errors"]) == (3, 2, 2)
    assert (line["mean"], line["success_rate"], line["method"]) == (0.5, 0.5, "wilson")
    assert (line["latency_p50_s"], line["latency_p95_s"]) == (3.0, pytest.approx(3.9))
    assert (line["prompt_tokens"], line["completion_tokens"]) == (300, 60)


def test_a_pair_without_scores_has_counts_and_no_mean():
    (line,) = table(summary_table, lost(1), lost(2))
    assert (line["samples"], line["scored"]) == (2, 0)
    assert [line[name] for name in ("mean", "low", "high", "method", "success_rate", "latency_p50_s")] == [None] * 6


def test_a_score_that_is_not_a_number_is_a_missing_one():
    (line,) = table(summary_table, row(1, score=float("nan")), row(2))
    assert (line["scored"], line["mean"]) == (1, 1.0)


def test_copies_of_a_sample_are_counted_once():
    (line,) = table(summary_table, row(1), row(1), row(2))
    assert line["samples"] == 2


def test_each_environment_counts_the_same_in_the_leaderboard():
    rows = [row(n, environment="a:many") for n in range(8)] + [row(9, environment="a:few", score=0.0)]
    (line,) = leaderboard_table(build_leaderboard(frame(*rows))).to_dicts()
    assert (line["mean"], line["environments"], line["scored"]) == (0.5, 2, 9)
    assert 0 < line["low"] < 0.5 < line["high"] < 1


def test_a_model_scored_in_fewer_environments_does_not_lead():
    rows = [
        row(1, model="acme/broad@main", environment="a:easy", score=0.6),
        row(2, model="acme/broad@main", environment="a:hard", score=0.1),
        row(3, model="acme/narrow@main", environment="a:easy", score=0.9),
        lost(4, model="acme/narrow@main", environment="a:hard"),
        lost(5, model="acme/broken@main", environment="a:hard"),
    ]
    board = leaderboard_table(build_leaderboard(frame(*rows)))
    assert board.select("model", "environments", "left_out", "missing_share").rows() == [
        ("acme/broad@main", 2, 0, 0.0),
        ("acme/narrow@main", 1, 1, 0.5),
        ("acme/broken@main", 0, 2, 1.0),
    ]


def test_the_means_that_missing_scores_allow_count_each_environment_the_same():
    rows = [row(n, environment="a:many") for n in range(8)] + [
        row(8, environment="a:few", score=0.0),
        lost(9, environment="a:few"),
        lost(10, environment="a:gone"),
    ]
    (line,) = table(missing_table, *rows)
    assert (line["mean"], line["mean_if_zero"], line["mean_if_one"]) == (
        0.5,
        pytest.approx(1 / 3),
        pytest.approx(2.5 / 3),
    )


def test_samples_without_an_index_have_no_task_in_common():
    rows = frame(row(1), row(2)).drop("index")
    assert checked_samples(rows)["index"].n_unique() == 2


def test_errors_show_their_last_message_redacted_and_where_they_were():
    Secret("battery-staple-1")
    lines = table(
        error_table,
        lost(1, error="HTTP 503 first"),
        lost(2, error="HTTP 503 with battery-staple-1\x1b[0m", environment="other:env"),
        lost(3, kind="auth", error="HTTP 401"),
    )
    assert [(line["error_kind"], line["errors"], line["environments"]) for line in lines] == [
        ("provider_failure", 2, "2 environments"),
        ("auth", 1, "affine:sat"),
    ]
    assert lines[0]["last_message"] == "HTTP 503 with [redacted]\\x1b[0m"
    assert lines[0]["last_at"] == START + 4


def test_missing_scores_are_told_by_cause_and_bound_the_mean():
    (line,) = table(
        missing_table,
        row(1, score=1.0),
        row(2, score=0.5),
        lost(3),
        lost(4, kind="environment"),
        lost(5, kind="cancelled"),
    )
    assert (line["provider_errors"], line["environment_errors"], line["cancelled"]) == (1, 1, 1)
    assert line["provider_share"] == pytest.approx(0.2)
    assert (line["mean"], line["mean_if_zero"], line["mean_if_one"]) == (0.75, 0.3, pytest.approx(0.9))


def test_every_error_kind_is_the_providers_the_environments_the_models_a_budgets_or_a_cancellation():
    budgets = {ErrorKind.BUDGET, ErrorKind.DAILY_BUDGET}
    others = {ErrorKind.BAD_ANSWER, ErrorKind.ENVIRONMENT, ErrorKind.JUDGE, ErrorKind.CANCELLED} | budgets
    assert set(PROVIDER_ERRORS) | others == set(ErrorKind)
    assert not set(PROVIDER_ERRORS) & others


def test_times_may_be_timestamps():
    rows = frame(row(1)).with_columns(
        pl.from_epoch("started_at", "s").dt.replace_time_zone("UTC"),
        pl.Series("finished_at", [datetime.fromtimestamp(START + 5.5, UTC)]),
    )
    assert checked_samples(rows).select("started_at", "finished_at").row(0) == (START + 1, START + 5.5)


def test_categorical_names_are_accepted():
    rows = frame(row(1), row(2)).with_columns(pl.col("model", "environment").cast(pl.Categorical))
    assert summary_table(checked_samples(rows))["samples"].to_list() == [2]


def test_missing_columns_are_named():
    with pytest.raises(errors.InvalidInputError, match="the samples lack the columns score, latency_s"):
        checked_samples(frame(row(1)).drop("score", "latency_s"))


def test_an_endpoint_that_changed_who_answers_is_told_with_when_and_how_often() -> None:
    by = [("gpt-x", "fp_1"), ("gpt-x", "fp_1"), ("gpt-x", "fp_2"), (None, None)]
    rows = pl.DataFrame(
        [("a@main", 60.0 * number, *named) for number, named in enumerate(by)] + [("b@main", 0.0, "b", None)],
        schema=["model", "finished_at", *SERVED],
        orient="row",
    )
    (told,) = served_notes(rows)
    first = "gpt-x fp_1 since 1970-01-01 00:00 UTC (samples: 2)"
    second = "gpt-x fp_2 since 1970-01-01 00:02 UTC (samples: 1)"
    assert told == f"The endpoint of a@main changed; answered by {first}, {second}."
    assert served_notes(rows.with_columns(pl.from_epoch(pl.col("finished_at").cast(pl.Int64)))) == (told,)
    assert served_notes(rows.drop("served_model")) == ()


def test_a_leaderboard_tells_of_what_time_it_is_and_which_endpoints_changed_meanwhile() -> None:
    rows = frame(*(row(n, index=n, model="a@main", finished_at=START + 60 * n) for n in range(12)))
    changed = rows.with_columns(served_model=pl.when(pl.col("index") < 6).then(pl.lit("x")).otherwise(pl.lit("y")))
    board = build_leaderboard(changed.with_columns(system_fingerprint=pl.lit(None, dtype=pl.String)))
    document, time = leaderboard_document(board), "samples that ended 2025-11-20 00:53 UTC to 2025-11-20 01:04 UTC"
    assert (document["first_finished_at"], document["last_finished_at"]) == (START, START + 660)
    assert leaderboard_view(board).period == time
    assert f"since 7d; {time}" in leaderboard_view(board, period="since 7d").page()
    assert any(note.startswith("The endpoint of a@main changed; answered by x since") for note in document["notes"])
    none = build_leaderboard(rows.clear())
    assert (leaderboard_document(none)["last_finished_at"], leaderboard_view(none).period) == (None, "")
    dated = rows.with_columns(pl.from_epoch(pl.col("finished_at"), "s"))
    assert build_leaderboard(dated).ended == (START, START + 660)
