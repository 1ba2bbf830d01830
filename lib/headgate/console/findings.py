"""What is wrong, since when, what holds it, and what to do about it, from the answers of the sources."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from headgate.console.asking import RunSource, key_of
from headgate.console.gates import gates_of
from headgate.console.sources import RAREST_S, Source, Sources
from headgate.core import utc_text
from headgate.core.errors import some_of
from headgate.core.status import MANY_UNSCORED
from headgate.jobqueue import WITHDRAWN
from headgate.telemetry import counted, duration

LATE_S: Final = 900.0
"""A model that is this far behind its rate is worth a look."""

MOST_NAMED: Final = 3

_UNWRITTEN: Final = {
    "journal": "No sample starts meanwhile. Free space, or bring its database back: the run then continues by itself.",
    "store": "Samples wait in the journal meanwhile. Storing is retried by itself, at least once a minute.",
}

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        key: identifies it, and stays the same while it lasts.
        severity: `bad` loses samples or makes no progress, `warn` is slower than it should be.
        title: what is wrong.
        holds: the cause, as the source states it.
        todo: what to do about it.
        since: wall time of its start; None where only the console's own observation tells.
        link: address of the screen that shows more.
        place: name of the campaign; empty if it belongs to none.
    """

    key: str
    severity: str
    title: str
    holds: str = ""
    todo: str = ""
    since: float | None = None
    link: str = ""
    place: str = ""


class Findings:
    """Finds what is wrong, and remembers when each finding began while it lasts. Owned by the console."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._since: dict[str, float] = {}

    def now(self, now: float) -> list[Finding]:
        """Return what is wrong, the worst and oldest first; `now` is wall time."""
        # What several runs of a campaign report is shown once, in the longest form: not each has asked every model.
        alike: dict[tuple[str, ...], list[Finding]] = {}
        for one in self._all():
            alike.setdefault((one.place, one.title, "" if one.place else one.holds), []).append(one)
        told, known, self._since = list[Finding](), self._since, {}
        for ones in alike.values():
            since = min(one.since or known.get(one.key, now) for one in ones)
            # Of each, as the run that is named first may end before the others.
            self._since |= {one.key: since for one in ones}
            told.append(replace(max(ones, key=lambda one: len(one.holds)), key=ones[0].key, since=since))
        return sorted(told, key=lambda one: (one.severity, one.since))  # bad, then warn

    def _all(self) -> Iterator[Finding]:
        """Yield what is wrong; a run that ended in order while others of its campaign go on is not."""
        live = {source.campaign for source in self._sources.of("run") if source.is_up and isinstance(source, RunSource)}
        for source in self._sources.all:
            if not (isinstance(source, RunSource) and source.is_over and source.campaign in live):
                yield from found_in(source)


def found_in(source: Source) -> Iterator[Finding]:
    """Yield what is wrong with a source."""
    if not source.is_up:
        if source.problem:
            yield _silent(source)
        return
    place = source.name if source.kind == "run" else ""
    for finding in _LOOKS[source.kind](source, source.said):
        yield replace(finding, key=f"{source.kind} {source.address} {finding.key}", place=place)


def _silent(source: Source) -> Finding:
    what = {"run": "Campaign", "jobqueue": "Job queue", "elastic": "Pool"}.get(source.kind, source.kind.capitalize())
    state, before = source.said.get("state"), ""
    unseen_s = (source.down_since or 0.0) - (source.seen_at or math.inf)
    if unseen_s > RAREST_S:
        before = f"; it last answered {duration(unseen_s)} earlier, and nobody looked in between"
    if source.is_gone and source.kind == "run":
        was = f"; it was {state} when it last answered" if state and not before else before
        was += "; it did not leave its journal: it was killed, or its machine was lost" if source.left == "" else ""
        title, holds = f"{what} {source.name} has ended", f"nothing listens at {source.address} any more{was}"
        todo = "" if source.is_over else "Its log says why. The same command takes up what was open."
        severity = "warn" if source.is_over else "bad"
        return Finding(f"gone {source.address}", severity, title, source.ended_by or holds, todo, source.down_since)
    todo = "Start it, or correct the address that the console was given."
    if source.kind == "placement":
        todo = "Start it with `headgate placement up` and this --journal: it takes up its work."
    elif source.seen_at is not None and not source.is_gone:
        todo = "It did answer: look at its log, its process and its machine."
    elif source.kind == "run":
        todo = "Start it with --enable-monitoring, or correct the address given by --run."
    title, holds, todo = f"{what} {source.name} does not answer", source.problem + before, source.todo or todo
    return Finding(f"down {source.address}", "bad", title, holds, todo, source.down_since)


# Campaigns.


def _run(source: Source, said: Document) -> Iterator[Finding]:
    name = said["campaign"]
    if said["state"] == "draining":
        yield Finding("draining", "warn", f"{name} is draining", "it finishes what it began and accepts nothing new")
    for what in ("journal", "store"):
        if why := said.get(f"{what}_problem"):
            yield Finding(what, "bad", f"{name}: its {what} cannot be written", why, _UNWRITTEN[what])
    yield from _paused(source, said)
    yield from _unscored(said)
    yield from _late(source, said)
    yield from _endpoints(source, said)
    yield from _budgets(source, said)
    yield from _engines(said)
    queue = said["queue"]
    if queue["is_paused"]:
        holds = f"{queue['size']:,} tasks are ready, {queue['pause_threshold']:,} at most; "
        holds += f"it goes on at {queue['resume_threshold']:,}"
        todo = "Give it more workers, or lower rates: more is due than is sampled."
        link = f"/gates?run={quote(source.address)}"
        yield Finding("queue", "warn", f"{name}: samplers are held back", holds, todo, link=link)
    outside = said.get("outside")
    if outside and outside["problem"]:
        yield Finding("outside", "bad", f"{name}: its job queue cannot be asked", outside["problem"])


class _Pause(NamedTuple):
    """One pause; those with the same first two fields become one finding."""

    is_failing: bool
    reason: str
    model: str
    environment: str
    since: float | None
    until: float | None = None
    error: str | None = None


def _pauses(said: Document) -> Iterator[_Pause]:
    """Yield what operators have paused, and what has been paused for another reason."""
    told = set()
    for one in (said.get("controls") or {}).get("controls", ()):
        if one["what"] == "paused":
            told.add(one["says"])
            why = f"by {one['by']}: {one['reason'] or 'no reason was given'}"
            yield _Pause(False, why, one["model"] or "", one["environment"] or "", one["at"])
    for one in said["models"]:
        if one["is_paused"] and one["pause_reason"] not in told:
            is_failing = one.get("pause_kind") == "errors"
            why = "service errors" if is_failing else str(one["pause_reason"] or "paused")
            moments = one["paused_since"], one["pause_until"]
            yield _Pause(is_failing, why, one["model"], "", *moments, one["last_error"])


def _paused(source: Source, said: Document) -> Iterator[Finding]:
    by_cause: dict[tuple[bool, str], list[_Pause]] = {}
    for one in _pauses(said):
        by_cause.setdefault(one[:2], []).append(one)
    for (is_failing, reason), pauses in by_cause.items():
        first = min((one.until for one in pauses if one.until), default=None)
        holds, todo = reason, "It goes on by itself." if first else "Resume it when it may go on."
        if is_failing:
            failed = next((one for one in pauses if one.error), pauses[0])
            whose = f" of {failed.model}" if len(pauses) > 1 else ""
            error = f"; last error{whose}: {failed.error}" if failed.error else ""
            holds += (f"; tried again in {duration(first - said['captured_at'])}" if first else "") + error
            todo = "Look at the endpoint; Retry ends the pause at once."
        alone, *others = pauses
        subject = {"run": source.address, "model": alone.model, "environment": alone.environment}
        link = f"/matrix?run={quote(source.address)}&state=paused" if others else f"/steer?{urlencode(subject)}"
        names = [" in ".join(filter(None, (one.model, one.environment))) or said["campaign"] for one in pauses]
        since = min((one.since for one in pauses if one.since), default=None)
        severity, title = "bad" if is_failing else "warn", _are(names, "paused")
        yield Finding(f"paused {reason}", severity, title, holds, todo, since, link)


def _unscored(said: Document) -> Iterator[Finding]:
    failing = [one for one in said["models"] if one.get("unscored", 0) >= MANY_UNSCORED and not one["is_paused"]]
    if failing:
        worst = max(failing, key=lambda one: one["unscored"])
        title = f"{_named(one['model'] for one in failing)} {'gets' if len(failing) == 1 else 'get'} no score"
        holds = f"none of the last {worst['unscored']:,} samples of {worst['model']} has one"
        holds += f"; last error: {worst['last_error']}"
        todo = "Pause it until the cause is gone: such errors pause no model by themselves."
        since = min((one["unscored_since"] for one in failing if one.get("unscored_since")), default=None)
        yield Finding("unscored", "bad", title, holds, todo, since, f"/samples?model={quote(worst['model'])}")


def _late(source: Source, said: Document) -> Iterator[Finding]:
    paused = {(one.model, one.environment) for one in _pauses(said)}
    late: dict[str, float] = {}
    for pair in said["pairs"]:
        model, name, lag_s = pair["model"], pair["environment"], pair["lag_s"]
        if lag_s > LATE_S and paused.isdisjoint(((model, name), (model, ""), ("", name), ("", ""))):
            late[model] = max(late.get(model, 0.0), lag_s)
    if not late:
        return
    worst = max(late, key=lambda model: late[model])
    workers = said["workers"]
    is_busy, since = workers["active"] >= workers["total"], said["captured_at"] - late[worst]
    todo = "Give it more workers, or lower rates." if is_busy else "Why says which gate holds a task."
    title = _are(sorted(late, key=lambda model: -late[model]), f"late, by {duration(late[worst])} at most")
    link = f"/matrix?run={quote(source.address)}&state=late"
    yield Finding("late", "warn", title, held_by(said, worst), todo, since, link)


def _endpoints(source: Source, said: Document) -> Iterator[Finding]:
    gates = f"/gates?run={quote(source.address)}"
    for is_open in (True, False):
        alone = [key for key in said["requests"] if key["cooldown_s"] > 0 and (key["breaker"] == "open") is is_open]
        if not alone:
            continue
        last = max(alone, key=lambda key: key["cooldown_s"])
        waiters, outcome = sum(key["waiters"] for key in alone), last["last_outcome"] or "none"
        names = [key["model"] for key in alone] if len(alone) > 1 else [f"{last['model']} at {last['provider']}"]
        holds = f"{'the breaker is open' if is_open else 'cools down'} for another {duration(last['cooldown_s'])}; "
        holds += f"last outcome: {outcome}, {waiters:,} requests wait"
        todo = "Look at the provider; requests go on by themselves when the time is over."
        severity, link = "bad" if is_open else "warn", f"{gates}&key={quote(key_of(last))}"
        yield Finding(f"endpoints {is_open}", severity, _are(names, "left alone"), holds, todo, link=link)


def _budgets(source: Source, said: Document) -> Iterator[Finding]:
    spent = [
        (model["model"], budget)
        for model in said["models"]
        for budget in model["budgets"]
        if budget["limit"] is not None and budget["used"] + budget["held"] >= budget["limit"]
    ]
    if spent:
        names, (_, budget) = _named(dict.fromkeys(model for model, _ in spent)), spent[0]
        title = f"{names} spent the {budget['name'].replace('_', ' ')}"
        holds = f"{budget['used']:,.10g} used and {budget['held']:,.10g} held of {budget['limit']:,.10g} in 24 h"
        todo = "Wait until the 24 h have passed, or raise the budget."
        yield Finding("budgets", "warn", title, holds, todo, link=f"/gates?run={quote(source.address)}")


def _engines(said: Document) -> Iterator[Finding]:
    failed = [model for model in said["models"] if model["engines"] and model["engines"]["state"] == "failed"]
    if failed:
        engines = failed[0]["engines"]
        again = f"; tried again in {duration(engines['retry_s'])}" if engines["retry_s"] else ""
        names = _named(model["model"] for model in failed)
        yield Finding("engines", "bad", f"The engines of {names} failed", engines["reason"] + again)


def held_by(said: Document, model: str) -> str:
    """Return what most likely holds a model's samples, in a sentence; `why` knows it for a single task."""
    holding = [step for step in gates_of(said, model) if step.state != "open"]
    # The last gate on the way: earlier ones may be shut only because of it.
    return f"{holding[-1].name.lower()}: {holding[-1].says}" if holding else "nothing that is visible at a glance"


# Journals, job queues, pools, placement.


def _journal(_: Source, said: Document) -> Iterator[Finding]:
    for run in said["refused"]:
        title, holds = f"Campaign {run['campaign']} runs and is not watched", f"{run['address']}: {run['why']}"
        yield Finding(f"refused {run['address']}", "warn", title, holds, "Name its host if it may see the token.")
    for run in said["lost"]:
        title, sampled = f"A run of campaign {run['campaign']} was lost", some_of(run["environments"], MOST_NAMED)
        did = f"sampled {sampled}" if sampled else "ran"
        holds = f"{run['address']} on {run['machine']}, which {did} since {utc_text(run['started_at'], seconds=True)}, "
        yield Finding(f"lost {run['run_id']}", "bad", title,
                      f"{holds}did not leave its journal: it was killed, or its machine was lost",
                      "Its log says why. The same command takes up what was open.", run["died_at"])  # fmt: skip
    for path, why in said["unreadable"].items():
        todo = "Let the console read it: a run of that campaign may be hidden."
        yield Finding(f"unreadable {path}", "warn", f"{path} cannot be read", why, todo)


def _queue(_: Source, said: Document) -> Iterator[Finding]:
    failed = [job for job in said["dead"] if not job["last_error"].startswith(WITHDRAWN)]
    if dead := said["jobs"].get("dead", 0) - said.get("withdrawn", 0):
        holds = next((f"{job['id']}: {job['last_error']}" for job in failed), "")
        title, todo = (
            f"{counted(dead, 'job')} {'is' if dead == 1 else 'are'} dead",
            "Put them back once the cause is gone.",
        )
        since = min((job["finished_at"] for job in failed if job["finished_at"]), default=None)
        yield Finding("dead", "bad", title, holds, todo, since, "/workers#dead")
    unserved = [lane for lane in said["lanes"] if lane["pending"] and not lane["is_served"]]
    if unserved:
        names = _named(sorted({lane["task"] for lane in unserved}))
        count = sum(lane["pending"] for lane in unserved)
        yield Finding(
            "unserved", "bad", f"no policy server for {counted(count, 'job')}", f"no open server serves {names}",
            "Register one, or open one that drains.", link="/workers",
        )  # fmt: skip
    down = [server for server in said["servers"] if server["state"] == "down"]
    if down:
        title = _are([server["resource_id"] for server in down], "down")
        yield Finding("servers", "warn", title, down[0]["note"], link="/workers")
    if said["jobs"].get("pending") and not said["workers"] and not said["waiting_claims"]:
        yield Finding(
            "workers", "bad", f"no worker for {counted(said['jobs']['pending'], 'job')}",
            "no worker holds a job or asks for one", "Start workers: `headgate jobqueue work`.", link="/workers",
        )  # fmt: skip


def _pool(_: Source, said: Document) -> Iterator[Finding]:
    failed = [worker for worker in said["pool"]["workers"] if worker["failures"]]
    for worker in failed[:MOST_NAMED]:
        holds = worker["last_error"] + (f"; tried again in {duration(worker['retry_s'])}" if worker["retry_s"] else "")
        title = f"{worker['worker_id']} of pool {said['name']} failed {counted(worker['failures'], 'time')}"
        todo = "Look at the engine; Drain keeps it out."
        yield Finding(f"worker {worker['worker_id']}", "warn", title, holds, todo, link="/workers")
    if said["is_draining"]:
        yield Finding("draining", "warn", f"Pool {said['name']} is being stopped", "it takes no new requests")
    if said["admission"]["waiting"] >= said["admission"]["most_waiting"]:
        yield Finding(
            "full", "bad", f"Pool {said['name']} refuses requests",
            f"{said['admission']['waiting']:,} wait already, which is the most", "Add workers to the pool.",
        )  # fmt: skip


def _placement(_: Source, said: Document) -> Iterator[Finding]:
    lost = [one for one in said["requests"] if one.stage == "failed"]
    if lost:
        names = _named(one.request_id for one in lost)
        yield Finding("failed", "warn", f"{names} failed", lost[0].note, link="/workers#placement")


def _are(names: Sequence[str], what: str) -> str:
    return f"{_named(names)} {'is' if len(names) == 1 else 'are'} {what}"


def _named(names: Iterable[str]) -> str:
    return some_of(list(names), MOST_NAMED)


_LOOKS: Final = {"run": _run, "journal": _journal, "jobqueue": _queue, "elastic": _pool, "placement": _placement}
