from __future__ import annotations

import json
from dataclasses import replace

from headgate.core import Secret
from headgate.telemetry import status_document
from tests.telemetry.factories import model, status


def test_a_status_is_json_with_its_own_names_and_what_follows_from_them():
    document = json.loads(json.dumps(status_document(status()), allow_nan=False))
    assert document["uptime_s"] == 90
    assert document["queue"]["size"] == 1234
    assert document["queue"]["is_warning"] is False
    assert document["pairs"][0]["mean_score"] == 0.75
    assert document["models"][2]["pause_reason"] == "3 consecutive service errors"


def test_the_mean_is_none_before_the_first_score_and_what_json_cannot_hold_is_none():
    pairs = status().pairs
    odd = status(pairs=(replace(pairs[0], scored=0, lag_s=float("inf")), replace(pairs[1], score_sum=float("nan"))))
    first, second = status_document(odd)["pairs"]
    assert (first["mean_score"], first["lag_s"]) == (None, None)
    assert (second["mean_score"], second["score_sum"]) == (None, None)


def test_error_texts_are_redacted_and_printable():
    Secret("correct-horse-battery")
    shown = status_document(status(models=(model(1, last_error="bad key correct-horse-battery\x1b[0m"),)))
    assert shown["models"][0]["last_error"] == "bad key [redacted]\\x1b[0m"
