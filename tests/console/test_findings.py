"""What the console finds wrong with a campaign, read off what it says of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from headgate.console.findings import Finding, Findings, found_in
from headgate.console.sources import Asked, Source, Sources
from headgate.run.controls import Controls
from headgate.storage import ControlChange
from headgate.telemetry import status_document
from tests.console import worlds

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from headgate.core.status import CampaignStatus


async def _source(status: CampaignStatus, controls: Controls | None = None, at: str = "http://there") -> Source:
    async def ask() -> Asked:
        told = None if controls is None else controls.document()
        return status_document(status) | {"controls": told}, {}, 0

    source = Source("run", at, ask)
    await source.poll()
    return source


def _found(portal: BlockingPortal, status: CampaignStatus, controls: Controls | None = None) -> list[Finding]:
    return list(found_in(portal.call(_source, status, controls)))


@pytest.mark.parametrize("what", ["journal", "store"])
def test_a_journal_or_a_store_that_cannot_be_written_is_wrong(portal: BlockingPortal, what: str) -> None:
    problem: dict[str, Any] = {f"{what}_problem": "database or disk is full (/data)"}
    (one,) = [one for one in _found(portal, replace(worlds.large_status(2, 1), **problem)) if "cannot be" in one.title]
    assert (one.severity, one.title, one.holds) == (
        "bad",
        f"main: its {what} cannot be written",
        "database or disk is full (/data)",
    )
    assert "by itself" in one.todo


def test_models_that_get_no_score_are_wrong_although_nothing_pauses_them(portal: BlockingPortal) -> None:
    status = worlds.large_status(3, 1)
    counts = (
        {"unscored": 9},
        {"unscored": 10, "unscored_since": 1_234.5, "last_error": "HTTP 404: no such model"},
        {"unscored": 0},
    )
    models = tuple(replace(model, is_paused=False, **count) for model, count in zip(status.models, counts, strict=True))
    (one,) = [one for one in _found(portal, replace(status, models=models)) if one.key.endswith("unscored")]
    assert one.title == f"{models[1].model} gets no score"
    assert one.holds == f"none of the last 10 samples of {models[1].model} has one; last error: HTTP 404: no such model"
    assert one.since == 1_234.5


def test_the_error_of_several_paused_models_names_the_one_that_had_it(portal: BlockingPortal) -> None:
    status = worlds.large_status(2, 1)
    paused: dict[str, Any] = {"is_paused": True, "pause_kind": "errors", "last_error": "HTTP 401: wrong key"}
    models = tuple(replace(model, **paused) for model in status.models)
    (one,) = [one for one in _found(portal, replace(status, models=models)) if "paused" in one.key]
    assert one.holds.endswith(f"last error of {models[0].model}: HTTP 401: wrong key")
    (one,) = [one for one in _found(portal, replace(status, models=models[:1])) if "paused" in one.key]
    assert one.holds.endswith("; last error: HTTP 401: wrong key")


@pytest.mark.parametrize(
    ("errors", "withdrawn", "title"),
    [
        (["withdrawn", "boom"], 1, "1 job is dead"),
        (["withdrawn: late"], 1, None),
        (["withdrawn: late", "boom"], 4_000, "1,000 jobs are dead"),
    ],
)
def test_jobs_that_somebody_has_withdrawn_are_no_dead_ones_whether_they_are_listed_or_not(
    portal: BlockingPortal, errors: list[str], withdrawn: int, title: str | None
) -> None:
    dead = [{"id": error, "last_error": error, "finished_at": 1.0} for error in errors]

    async def source() -> Source:
        async def ask() -> Asked:
            jobs = {"dead": 5_000 if withdrawn > len(dead) else len(dead)}
            return {"jobs": jobs, "withdrawn": withdrawn, "dead": dead, "lanes": [], "servers": []}, {}, 0

        queue = Source("jobqueue", "http://there", ask)
        await queue.poll()
        return queue

    found = list(found_in(portal.call(source)))
    assert [(one.title, one.holds) for one in found] == ([(title, "boom: boom")] if title else [])


@pytest.mark.parametrize(
    ("kind", "reason", "severity", "todo"),
    [
        ("errors", "it answered nothing (pause 3)", "bad", "Look at the endpoint; Retry ends the pause at once."),
        ("control", "service errors, says the operator", "warn", "Resume it when it may go on."),
        ("budget", "service errors cost it all", "warn", "Resume it when it may go on."),
    ],
)
def test_what_has_paused_a_model_is_read_off_the_kind_and_not_off_the_words(
    portal: BlockingPortal, kind: str, reason: str, severity: str, todo: str
) -> None:
    status = worlds.large_status(2, 1)
    paused: dict[str, Any] = {"is_paused": True, "pause_kind": kind, "pause_until": None}
    models = tuple(
        replace(model, pause_reason=reason.replace("3", f"{number}"), **paused)
        for number, model in enumerate(status.models)
    )

    (one,) = [one for one in _found(portal, replace(status, models=models)) if "paused" in one.key]
    assert (one.severity, one.todo) == (severity, todo)
    assert one.title.endswith("are paused")


def _pause(revision: int, model: str | None, environment: str | None, reason: str = "garbage") -> ControlChange:
    return ControlChange(revision, "pause", model, environment, "paused", None, True, "ops", 100.0 + revision, reason)


def test_whatever_an_operator_has_paused_is_told_also_an_environment_and_a_model_in_one(portal: BlockingPortal) -> None:
    status = worlds.large_status(2, 1)
    status = replace(status, models=tuple(replace(model, is_paused=False) for model in status.models), requests=())
    model, environment = status.models[0].model, status.pairs[0].environment
    controls = Controls()
    controls.put(_pause(1, None, environment))
    controls.put(_pause(2, model, environment))
    controls.put(_pause(3, model, None, ""))
    both, alone = [one for one in _found(portal, status, controls) if " paused" in one.key]
    assert (both.title, both.since) == (f"{environment}, {model} in {environment} are paused", 101.0)
    assert (both.severity, both.holds, both.todo) == ("warn", "by ops: garbage", "Resume it when it may go on.")
    assert (alone.title, alone.holds) == (f"{model} is paused", "by ops: no reason was given")
    assert (both.link.partition("?")[0], alone.link.partition("?")[0]) == ("/matrix", "/steer")


def test_runs_of_one_campaign_say_once_what_is_wrong_with_a_model(portal: BlockingPortal) -> None:
    status = worlds.large_status(1, 1)
    paused: dict[str, Any] = {"is_paused": True, "pause_kind": "errors", "paused_since": 50.0}
    (model,) = status.models
    first = replace(status, models=(replace(model, last_error=None, **paused),))
    second = replace(
        status, models=(replace(model, last_error="HTTP 401: wrong key", **paused | {"paused_since": 40.0}),)
    )
    told = [(first, "http://one"), (second, "http://two"), (replace(second, campaign="other"), "http://three")]
    sources = Sources([portal.call(_source, said, None, at) for said, at in told])
    found = [one for one in Findings(sources).now(1_000.0) if " paused" in one.key]
    assert sorted((one.place, one.since, one.key.split()[1]) for one in found) == [
        ("main", 40.0, "http://one"), ("other", 40.0, "http://three"),
    ]  # fmt: skip
    assert all(one.holds.endswith("HTTP 401: wrong key") for one in found)


def test_what_runs_of_one_campaign_say_goes_on_when_the_first_of_them_ends(portal: BlockingPortal) -> None:
    status = replace(worlds.large_status(1, 1), state="draining")
    both = [portal.call(_source, status, None, at) for at in ("http://one", "http://two")]
    sources = Sources(both)
    findings = Findings(sources)
    since = []
    for now in (1_000.0, 2_000.0):
        (one,) = [one for one in findings.now(now) if "draining" in one.title]
        since.append(one.since)
        portal.call(sources.remove, both[0])
    assert since == [1_000.0, 1_000.0]


def test_what_somebody_has_paused_is_not_late(portal: BlockingPortal) -> None:
    status = worlds.large_status(1, 3)
    models = tuple(replace(model, is_paused=False) for model in status.models)
    pairs = tuple(replace(pair, lag_s=4_000.0 + 1_000 * number) for number, pair in enumerate(status.pairs))
    status = replace(status, models=models, pairs=pairs)
    controls = Controls()

    def late() -> list[float | None]:
        return [status.captured_at - (one.since or 0) for one in _found(portal, status, controls) if " late" in one.key]

    assert late() == [pytest.approx(6_000)]
    controls.put(_pause(1, None, pairs[2].environment))
    assert late() == [pytest.approx(5_000)]
    controls.put(_pause(2, pairs[1].model, pairs[1].environment))
    assert late() == [pytest.approx(4_000)]
    controls.put(_pause(3, None, None))
    assert late() == []
