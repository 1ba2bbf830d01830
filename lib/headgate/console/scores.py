"""Scores of models from the stored samples: the leaderboard with intervals, and scores over time and by checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import polars as pl
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from headgate.console.pages import Console
from headgate.console.records import HEAVY, PATIENCE_S, while_connected
from headgate.console.samples import Listing
from headgate.core.errors import InvalidInputError
from headgate.core.events import ScoreDropped
from headgate.reports import (
    INDIFFERENCE,
    LEADERBOARD_COLUMNS,
    SERVED,
    Leaderboard,
    build_curve,
    build_leaderboard,
    curve_document,
    estimates_by,
    leaderboard_notes,
    neighbour_rows,
    step_of,
)
from headgate.statistics import MeanEstimate, ScoreChange, mean_of_means
from headgate.storage import SampleFilter, SampleIndex

MOST_COMPARED: Final = 40
"""Most models that are compared and ranked, which takes a second. With more there are no ranks."""

MOST_ROWS: Final = 200
MOST_LINES: Final = 4
"""Most models whose scores over time a page draws."""

MOST_TESTED: Final = 200_000
"""Newest samples of a model in which drops are looked for, which takes a second."""

POINTS: Final = 48
_SPANS_S: Final = (900, 3_600, 3 * 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the screens."""
    records = console.records

    @app.get("/leaderboard")
    async def leaderboard_page(request: Request) -> HTMLResponse:
        listing, models = Listing.of(request.query_params, time.time()), _models(request)
        against = request.query_params.get("against", "").strip()
        chosen = replace(listing.chosen, text="", model="", invalid=False)

        def make(index: SampleIndex) -> tuple[Leaderboard, tuple[str, ...]]:
            rows = _of_models(index, models, chosen)
            indifference = INDIFFERENCE if rows["model"].n_unique() <= MOST_COMPARED else 0.0
            board = build_leaderboard(rows, against=against, most_compared=MOST_COMPARED, indifference=indifference)
            return board, leaderboard_notes(board, of_differences=bool(board.pairs))

        key = ("leaderboard", chosen, models, against)
        answer = await while_connected(request, records.answer(key, make, patience_s=PATIENCE_S, weight=HEAVY))

        def values() -> dict[str, Any]:
            board, notes = answer.value if answer else (None, ())
            start = int(given) if (given := request.query_params.get("start", "")).isdecimal() else 0
            return {
                "listing": listing, "models": models, "against": against, "answer": answer, "board": board,
                "start": start, "size": MOST_ROWS, "notes": notes,
                "neighbours": neighbour_rows(board.neighbours) if board else [],
            }  # fmt: skip

        made_of = (answer and answer.revision, key)
        return await console.stored_page(request, "leaderboard.html", made_of, values)

    @app.get("/scores")
    async def scores_page(request: Request) -> HTMLResponse:
        listing, models = Listing.of(request.query_params, time.time()), _models(request)
        chosen = replace(listing.chosen, text="", model="", invalid=False)
        if len(models) > MOST_LINES:
            raise InvalidInputError(f"scores over time are drawn for at most {MOST_LINES} models (got {len(models)})")

        def make(index: SampleIndex) -> dict[str, Any]:
            found = {model: _of_models(index, (model,), chosen) for model in models}
            return {
                "lines": _lines(found),
                "curves": {model: curve for model in models if (curve := _checkpoints(index, model, chosen))},
                "drops": {model: _drops(rows) for model, rows in found.items() if rows["model"].n_unique() == 1},
                "rows": {model: rows.height for model, rows in found.items()},
            }

        key = ("scores", chosen, models)
        answer = await while_connected(request, records.answer(key, make, patience_s=PATIENCE_S, weight=HEAVY))

        def values() -> dict[str, Any]:
            return {"listing": listing, "models": models, "answer": answer, "shown": answer.value if answer else None}

        return await console.stored_page(request, "scores.html", (answer and answer.revision, key), values)


def _models(request: Request) -> tuple[str, ...]:
    """Return the models that an address names: one or several, by commas or by fields of that name."""
    given = ",".join(request.query_params.getlist("model"))
    return tuple(dict.fromkeys(name for one in given.split(",") if (name := one.strip())))


def _of_models(index: SampleIndex, models: Sequence[str], chosen: SampleFilter) -> pl.DataFrame:
    """Return the columns that a leaderboard reads of these models' samples; of all models if none is named.

    Raises:
        InvalidInputError: the store has no samples of one of them.
    """
    every = [replace(chosen, model=model) for model in models] or [chosen]
    condition = pl.any_horizontal([one.condition() for one in every])
    columns = [name for name in LEADERBOARD_COLUMNS if name not in {"trace_id", "answer", *SERVED}]
    found = index.rows.lazy().filter(condition).select(columns).collect()
    names = pl.col("model", "environment").cast(pl.String)
    return found.with_columns(names, pl.lit("").alias("trace_id"))


def _lines(found: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    """Return the scores over time as JSON values, all in the same spans, and the length of a span.

    For each span with a score, a line has the wall time at which it begins, the number of scored samples, and the mean
    over its environments, each counting the same, with its 95 % interval.
    """
    scored = {model: rows.filter(pl.col("score").is_not_null()) for model, rows in found.items()}
    every = [at for rows in scored.values() for at in rows["finished_at"]] or [0.0]
    range_s = max(every) - min(every)
    span_s = next((span for span in _SPANS_S if range_s <= POINTS * span), _SPANS_S[-1])
    lines = []
    for model, rows in scored.items():
        spans = (pl.col("finished_at") / span_s).floor().cast(pl.Int64).cast(pl.String).str.zfill(12)
        parts = estimates_by(rows.with_columns(span=spans), "span", "environment") if rows.height else {}
        means: dict[str, MeanEstimate] = {
            span: mean_of_means([part for _, part in own])
            for span, own in groupby(parts.items(), key=lambda one: one[0][0])
        }
        figures = {
            f"{name}s": [round(getattr(mean, name), 6) for mean in means.values()] for name in ("mean", "low", "high")
        }
        starts, samples = [int(span) * span_s for span in means], [mean.samples for mean in means.values()]
        lines.append({"model": model, "starts": starts, "samples": samples} | figures)
    return {"span_s": span_s, "lines": lines}


def _drops(rows: pl.DataFrame) -> list[ScoreDropped]:
    """Return where the scores of one model fell, by the test that alerts operators while a campaign runs."""
    change = ScoreChange(rows["environment"].n_unique())
    scored = rows.filter(pl.col("score").is_not_null()).sort("finished_at", "task_id").tail(MOST_TESTED)
    cells = scored.select("environment", "index", "score", "finished_at").iter_rows()
    return [drop for cell in cells if (drop := change.add(*cell)) is not None]


def _checkpoints(index: SampleIndex, model: str, chosen: SampleFilter) -> dict[str, Any] | None:
    """Return the scores of all checkpoints of a model by step, as JSON values; None if it has fewer than two."""
    name = model.partition("@")[0]
    steps = {key: step_of(key.partition("@")[2]) for key in index.names["model"] if key.partition("@")[0] == name}
    known = {key: step for key, step in steps.items() if step is not None}
    return curve_document(build_curve(_of_models(index, (name,), chosen), known)) if len(known) > 1 else None
