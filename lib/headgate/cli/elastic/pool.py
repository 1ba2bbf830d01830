"""`headgate elastic status|scale|drain|wake|release|resume`: show a pool, and control it by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Final

from cyclopts import Parameter

from headgate.cli.elastic.status_table import status_document, status_view, watch_pool
from headgate.cli.output import AsJson, console, counted, print_json, say, tell
from headgate.core import Secret
from headgate.core.errors import InvalidInputError
from headgate.elastic import EngineError, Pin, WorkerState
from headgate.elastic.gateway import GatewayClient, GatewayStatus
from headgate.elastic.service import WorkerView

_DEFAULT_URL: Final = "http://127.0.0.1:8080"
_URL_VARIABLE: Final = "HEADGATE_ELASTIC_URL"
_TOKEN_VARIABLE: Final = "HEADGATE_ELASTIC_TOKEN"  # noqa: S105 - the name of a variable

Url = Annotated[
    str | None, Parameter(help=f"The gateway; also {_URL_VARIABLE}, with {_TOKEN_VARIABLE}. By default {_DEFAULT_URL}.")
]
Worker = Annotated[str, Parameter(help="The worker's id, or a unique part of it, such as its port.")]

_WAKE_ALL_S: Final = 600.0
_LONGEST_S: Final = 7 * 86_400.0
_AUTO: Final = "auto"
_FOLLOW: Final = "`headgate elastic status --watch` follows it."

Wait = Annotated[bool, Parameter(help="Wait until it is done.")]


def status(
    *,
    url: Url = None,
    watch: Annotated[bool, Parameter(help="Refresh with every change, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show the workers of a pool and their states, the load, how many workers are wanted and why, and the counts."""
    if watch and as_json:
        raise InvalidInputError("--watch shows tables; it cannot be combined with --json")
    with _client_of(url) as client:
        if watch:
            watch_pool(client)
        elif as_json:
            print_json(status_document(client.status()))
        else:
            console().print(status_view(client.status()))
    return 0


def scale(
    workers: Annotated[str, Parameter(help="How many; `auto` lets the policy decide.")],
    *,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """Keep this many workers awake whatever the load, or let the policy decide again (`auto`).

    The number holds until it is changed or the gateway ends, and must lie within the pool's bounds.
    """
    number = _number(workers)
    with _client_of(url) as client:
        if number is not None:
            _check_there_are(number, client.status())
        now = client.scale(number)
    if number is None:
        told = f"The policy {now.pool.policy} decides how many workers {now.pool.name} has. {_FOLLOW}"
    else:
        has = f"{now.pool.name} is to have {counted(number, 'worker')} awake whatever the load"
        told = f"{has}; `headgate elastic scale auto` ends it. {_FOLLOW}"
    return _told(now, told, as_json=as_json)


def drain(worker: Worker, *, wait: Wait = False, url: Url = None, as_json: AsJson = False) -> int:
    """Put a worker to sleep and leave it asleep until `release`.

    It takes no new request and answers those it has; requests whose answer has not begun in time move to other workers.
    """
    with _client_of(url) as client:
        before = client.status()
        now = client.drain(worker)
        if wait:
            now = _awaited(client, before, worker, WorkerState.INACTIVE)
    return _told(now, _kept(now, worker, "goes to sleep, and sleeps", "sleeps"), as_json=as_json)


def wake(
    worker: Annotated[str | None, Parameter(help="Its id, or a unique part of it.")] = None,
    *,
    every: Annotated[bool, Parameter(name="--all", help="Every worker, for a limited time.")] = False,
    for_s: Annotated[
        float | None, Parameter(name="--for", help=f"With --all: seconds; {_WAKE_ALL_S:g} by default.")
    ] = None,
    wait: Wait = False,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """Wake a worker and leave it awake until `release`; or wake all of them for a while, until `resume`."""
    if (worker is None) is not every:
        raise InvalidInputError(
            "name a worker or --all, and not both" if every else "neither a worker nor --all is named",
            next_step="`headgate elastic status` lists the workers.",
        )
    if for_s is not None and not every:
        raise InvalidInputError(
            "--for goes with --all: a worker that is woken alone stays awake until it is released",
            next_step="Leave --for out, or wake --all.",
        )
    if for_s is not None and not 0 < for_s <= _LONGEST_S:
        raise InvalidInputError(f"--for must be above 0 and at most {_LONGEST_S:g} seconds (got {for_s:g})")
    with _client_of(url) as client:
        if worker is None:
            return _wake_all(client, _WAKE_ALL_S if for_s is None else for_s, wait=wait, as_json=as_json)
        before = client.status()
        now = client.wake(worker)
        if wait:
            now = _awaited(client, before, worker, WorkerState.ACTIVE)
    return _told(now, _kept(now, worker, "wakes, and stays awake", "is awake, and stays so"), as_json=as_json)


def release(worker: Worker, *, url: Url = None, as_json: AsJson = False) -> int:
    """Let a worker that was drained or woken by hand follow the load again."""
    with _client_of(url) as client:
        now = client.unpin(worker)
    found = _one(now, worker)
    return _told(now, f"{found.worker_id} follows the load again; it is {found.state} now.", as_json=as_json)


def resume(*, url: Url = None, as_json: AsJson = False) -> int:
    """Follow the load again: end `wake --all` and `scale`. Single workers kept asleep or awake stay so."""
    with _client_of(url) as client:
        now = client.resume()
    kept = sum(worker.pin is not None for worker in now.pool.workers)
    still = f" {counted(kept, 'worker')} kept by hand stay so until `headgate elastic release`." if kept else ""
    return _told(now, f"{now.pool.name} follows its load again.{still} {_FOLLOW}", as_json=as_json)


def _number(written: str) -> int | None:
    if written.lower() == _AUTO:
        return None
    try:
        number = int(written)
    except ValueError:
        raise InvalidInputError(f"scale takes a whole number of workers, or `auto` (got {written!r})") from None
    if number < 1:
        raise InvalidInputError(
            f"a pool has at least one worker awake (got {number})",
            next_step="`headgate elastic drain WORKER` puts a single one to sleep.",
        )
    return number


def _check_there_are(number: int, now: GatewayStatus) -> None:
    if number > (most := len(now.pool.workers)):
        raise InvalidInputError(
            f"{now.pool.name} has {counted(most, 'worker')}, and {number} of them cannot be awake",
            next_step="Name fewer, or add engines to the pool's file and restart its gateway.",
        )


def _wake_all(client: GatewayClient, for_s: float, *, wait: bool, as_json: bool) -> int:
    now = client.wake_all(for_s)
    if wait:
        over = {WorkerState.ACTIVE, WorkerState.FAILED}
        now = _until(client, lambda told: all(w.pin is Pin.ASLEEP or w.state in over for w in told.pool.workers))
    awake = now.pool.count(WorkerState.ACTIVE)
    asleep = sum(worker.pin is Pin.ASLEEP for worker in now.pool.workers)
    but = f", but for {counted(asleep, 'worker')} kept asleep by hand" if asleep else ""
    told = (
        f"All workers of {now.pool.name} are woken{but}, and none is put to sleep for {for_s:g} s; {awake} of "
        f"{len(now.pool.workers)} take requests now. `headgate elastic resume` ends it sooner."
    )
    return _told(now, told, as_json=as_json)


def _awaited(client: GatewayClient, before: GatewayStatus, worker: str, state: WorkerState) -> GatewayStatus:
    """Return the status once a worker has reached a state; `before` is the status before the order.

    Raises:
        EngineError: it has failed since.
    """

    def failures(status: GatewayStatus) -> tuple[int, int]:
        # A start that succeeds, maybe between two looks, resets the failures in a row; yet no other count shows the
        # retries of a worker that stays failed.
        found = _one(status, worker)
        return found.failures, status.pool.counts.failures.get(found.worker_id, 0)

    def has_come(status: GatewayStatus) -> bool:
        now = _one(status, worker).state
        return now is state or (now is WorkerState.FAILED and failures(status) != failures(before))

    now = _until(client, has_come)
    found = _one(now, worker)
    if found.state is WorkerState.FAILED:
        raise EngineError(f"{found.worker_id} has failed: {found.last_error}")
    return now


def _until(client: GatewayClient, holds: Callable[[GatewayStatus], bool]) -> GatewayStatus:
    statuses = client.watch()
    if not holds(status := next(statuses)):
        say("waiting until it is done; Ctrl-C ends only the wait", stderr=True)
        status = next(status for status in statuses if holds(status))
    return status


def _one(status: GatewayStatus, named: str) -> WorkerView:
    """Return the worker that the gateway understands by a name: an id, or a part of one."""
    exact = status.pool.worker(named)
    return exact or next(worker for worker in status.pool.workers if named in worker.worker_id)


def _kept(status: GatewayStatus, worker: str, on_its_way: str, done: str) -> str:
    found = _one(status, worker)
    is_there = found.state is (WorkerState.INACTIVE if found.pin is Pin.ASLEEP else WorkerState.ACTIVE)
    says = done if is_there else on_its_way
    return f"{found.worker_id} {says} until `headgate elastic release {worker}`. {_FOLLOW}"


def _told(status: GatewayStatus, sentence: str, *, as_json: bool) -> int:
    return tell(status_document(status), sentence, as_json=as_json)


def _client_of(url: str | None) -> GatewayClient:
    """Return a client of the gateway at an address, or of the one that the environment names.

    Raises:
        InvalidInputError: the address is not an HTTP URL.
    """
    named = url or os.environ.get(_URL_VARIABLE, "").strip() or _DEFAULT_URL
    if not named.startswith(("http://", "https://")):
        raise InvalidInputError(
            f"a gateway's address must be http://host:port (got {named!r})",
            next_step=f"Correct --url or {_URL_VARIABLE}.",
        )
    token = os.environ.get(_TOKEN_VARIABLE, "").strip()
    return GatewayClient(named, Secret(token) if token else None)
