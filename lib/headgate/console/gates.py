"""Every limit over time: requests by endpoint, workers, the ready queue, budgets; and requests in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import QueryParams

from headgate.console.asking import key_of
from headgate.console.listing import page_of
from headgate.console.matrix import run_of
from headgate.console.pages import Console
from headgate.console.sources import History, Sources

ROWS: Final = 40
LINES: Final = ("limit", "in_flight", "waiters")


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the screen."""
    sources = console.sources

    console.add_live(app, "/gates", partial(_values, sources))

    @app.get("/gates/history")
    async def history(request: Request) -> JSONResponse:
        run = run_of(sources, request.query_params)
        if run is None:
            return JSONResponse({"times": [], "lines": {}})
        name = request.query_params.get("key", "")
        return JSONResponse(
            {
                "times": [round(at, 1) for at in run.history.times],
                "lines": {line: run.history.series(f"{name} {line}") for line in LINES},
                "refused": refused_share(run.history, name),
            }
        )


def refused_share(history: History, name: str) -> list[float | None]:
    """Return at each moment the share of attempts since the one before that were refused (429), in per cent."""
    answered, refused = history.series(f"{name} answered"), history.series(f"{name} rate_limited")
    shares: list[float | None] = [None] if answered else []
    for (a, b), (c, d) in zip(pairwise(answered), pairwise(refused), strict=True):
        known = a is not None and b is not None and c is not None and d is not None and b > a
        shares.append(100.0 * (d - c) / (b - a) if known else None)  # type: ignore[operator]  # `known` says so
    return shares


def _values(sources: Sources, query: QueryParams) -> dict[str, Any]:
    run = run_of(sources, query)
    said: Mapping[str, Any] = run.said if run is not None else {}
    wanted = query.get("find", "").lower()
    keys = [key for key in said.get("requests", ()) if wanted in key_of(key).lower()]
    keys.sort(key=_SORTS.get(query.get("sort", ""), _SORTS[""])[1])
    page = page_of(keys, query, ROWS)
    rates = {(rate["scope"], rate["unit"]): rate for key in keys for rate in key.get("rates", ())}
    chosen = query.get("key") or (key_of(page.items[0]) if page.items else "")
    return {
        "run": run,
        "runs": sources.of("run"),
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
