"""Every limit over time: requests by endpoint, workers, the ready queue, budgets; and requests in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import QueryParams

from headgate.console.asking import key_of
from headgate.console.listing import page_of
from headgate.console.pages import Console
from headgate.console.sources import History, Sources

ROWS: Final = 40
LINES: Final = ("limit", "in_flight", "waiters")


@dataclass(frozen=True, slots=True)
class Step:
    """One gate on the way.

    Attributes:
        name: of the gate.
        says: what it is like.
        state: `open`, `busy` where it lets through as others leave, or `shut`.
        until: when it opens by itself (wall time), where that is known.
        holds: whether it is the one that holds now.
    """

    name: str
    says: str
    state: str = "open"
    until: float | None = None
    holds: bool = False


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the screen."""
    sources = console.sources

    console.add_live(app, "/gates", partial(_values, sources))

    @app.get("/gates/history")
    async def history(request: Request) -> JSONResponse:
        run = sources.run(request.query_params.get("run", ""))
        if run is None:
            return JSONResponse({"times": [], "lines": {}})
        name = request.query_params.get("key", "")
        times = [round(at, 1) for at in run.history.times]
        lines = {line: run.history.series(f"{name} {line}") for line in LINES}
        return JSONResponse({"times": times, "lines": lines, "refused": refused_share(run.history, name)})


def refused_share(history: History, name: str) -> list[float | None]:
    """Return at each moment the share of attempts since the one before that were refused (429), in per cent."""
    answered, refused = history.series(f"{name} answered"), history.series(f"{name} rate_limited")
    shares: list[float | None] = [None] if answered else []
    for (a, b), (c, d) in zip(pairwise(answered), pairwise(refused), strict=True):
        known = a is not None and b is not None and c is not None and d is not None and b > a
        shares.append(100.0 * (d - c) / (b - a) if known else None)  # type: ignore[operator]  # `known` says so
    return shares


def _values(sources: Sources, query: QueryParams) -> dict[str, Any]:
    run = sources.run(query.get("run", ""))
    said: Mapping[str, Any] = run.said if run is not None else {}
    wanted = query.get("find", "").lower()
    keys = [key for key in said.get("requests", ()) if wanted in key_of(key).lower()]
    keys.sort(key=_SORTS.get(query.get("sort", ""), _SORTS[""])[1])
    page = page_of(keys, query, ROWS)
    rates = {(rate["scope"], rate["unit"]): rate for key in keys for rate in key.get("rates", ())}
    chosen = query.get("key") or (key_of(page.items[0]) if page.items else "")
    return {
        "run": run,
        "said": said,
        "page": page,
        "endpoints": [(run, key) for key in page.items],
        "chosen": chosen,
        "rates": sorted(rates.values(), key=lambda rate: rate["left"] / rate["limit"])[:ROWS],
        "budgets": _budgets(said, wanted),
        "batches": [one for one in said.get("batches", ()) if wanted in f"{one['model']} {one['provider']}".lower()],
        "sorts": _SORTS,
    }


def trouble_of(key: Mapping[str, Any]) -> tuple[float, ...]:
    """Return what sorts endpoints, those in trouble first."""
    return -key["cooldown_s"], -key["waiters"], -key["in_flight"]


_SORTS: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]]] = {
    "": ("trouble first", trouble_of),
    "model": ("model", lambda key: (key["model"], key["provider"])),
    "load": ("in flight", lambda key: -key["in_flight"]),
}


def _budgets(said: Mapping[str, Any], wanted: str) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Return the budgets of models, those with the least left first; of many, the first of them."""
    found = [
        (model["model"], budget)
        for model in said.get("models", ())
        if wanted in model["model"].lower()
        for budget in model["budgets"]
        if budget["limit"]
    ]
    return sorted(found, key=lambda pair: -(pair[1]["used"] + pair[1]["held"]) / pair[1]["limit"])[:ROWS]


def gates_of(said: Mapping[str, Any], model: str) -> Iterator[Step]:
    """Yield the gates that every task of a model passes, as a campaign says that they are."""
    one = next((each for each in said.get("models", ()) if each["model"] == model), None)
    if one is not None:
        says = one["pause_reason"] or "paused" if one["is_paused"] else f"sampled, {one['in_flight']} in progress"
        yield Step("Model", says, "shut" if one["is_paused"] else "open", one["pause_until"])
        for budget in one["budgets"]:
            if budget["limit"]:
                spent = budget["used"] + budget["held"]
                words = f"{budget['name'].replace('_', ' ')}: {spent:,.0f} of {budget['limit']:,.0f}"
                yield Step("Budget", words, "shut" if spent >= budget["limit"] else "open")
    if (queue := said.get("queue")) is not None:
        words = f"{queue['size']:,} tasks ready, {queue['pause_threshold']:,} at most"
        yield Step("Ready queue", words, "shut" if queue["is_paused"] else "open")
    if (workers := said.get("workers")) is not None:
        is_busy = workers["active"] >= workers["total"]
        yield Step("Workers", f"{workers['active']:,} of {workers['total']:,} busy", "busy" if is_busy else "open")
    if one is not None and one["engines"]:
        engines = one["engines"]
        is_awake = engines["state"] == "awake"
        words = f"{engines['state']}, {engines['awake']} of {engines['most']} awake {engines['reason']}"
        yield Step("Engines", words, "open" if is_awake else "shut")
    for key in said.get("requests", ()):
        if model in key["models"]:
            yield step_of_key(key, said["captured_at"])


def step_of_key(key: Mapping[str, Any], now: float) -> Step:
    """Return the gate that the requests of an endpoint pass; `now` is when the campaign said so."""
    words = f"{key['in_flight']} of {key['limit']} in flight, {key['waiters']} wait"
    if key["cooldown_s"]:
        return Step("Requests", f"{words}; left alone after {key['last_outcome']}", "shut", now + key["cooldown_s"])
    is_full = key["in_flight"] >= key["limit"] or key["waiters"]
    return Step("Requests", words, "busy" if is_full else "open")
