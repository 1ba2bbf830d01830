"""The stored samples: a list by filter and order, and single ones, also beside another model's of the same task."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson
import polars as pl
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from headgate.console.pages import Console
from headgate.console.records import Answer, while_connected
from headgate.core import moment_of
from headgate.core.errors import InvalidInputError, NotFoundError
from headgate.storage import Order, SampleFilter, SampleIndex, SamplePage
from headgate.telemetry import printable

PAGE: Final = 50
MOST_MESSAGES: Final = 100
MOST_CHARS: Final = 20_000
"""Characters shown of a message: at most 2 MB of a conversation; the page links to the whole text."""

MOST_BESIDE: Final = 100
_NUMBERS: Final = ("min_score", "max_score", "min_latency_s", "max_latency_s")
_FIELDS: Final = ("model", "environment", "error", *_NUMBERS, "since", "index", "text", "counts", "order")
_COUNTS: Final = {"": None, "yes": False, "no": True}
"""Whether a sample counts -> whether it was invalidated."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Filter and order of a list of samples.

    Attributes:
        chosen: which samples.
        order: order of the list.
        fields: the fields as written in the address.
    """

    chosen: SampleFilter
    order: Order
    fields: Mapping[str, str]

    @classmethod
    def of(cls, query: Mapping[str, str], now: float) -> Listing:
        """Return what an address asks for.

        Args:
            query: its fields; those that no list has are ignored.
            now: wall time that `since` counts back from.

        Raises:
            InvalidInputError: a field has an invalid value.
        """
        fields = {name: query.get(name, "").strip() for name in _FIELDS}
        given: dict[str, Any] = {name: fields[name] for name in ("model", "environment", "error", "text")}
        given |= {name: _number(name, fields[name]) for name in _NUMBERS if fields[name]}
        if fields["index"]:
            given["index"] = int(_number("index", fields["index"]))
        if fields["since"]:
            # By the minute, so that all requests for the last day within it share one answer.
            given["since"] = moment_of(fields["since"], now // 60 * 60, option="since")
        if fields["counts"] not in _COUNTS:
            raise InvalidInputError(f"counts must be yes or no (got {fields['counts']!r})")
        given["invalid"] = _COUNTS[fields["counts"]]
        order = fields["order"] or Order.NEWEST
        if order not in list(Order):
            raise InvalidInputError(f"order must be one of {', '.join(Order)} (got {order!r})")
        return cls(SampleFilter(**given), Order(order), fields)

    def link(self, path: str, **changes: object) -> str:
        """Return an address with these fields, some of them changed; None leaves one out."""
        fields = {**self.fields, **changes}
        query = urlencode([(name, value) for name, value in fields.items() if value not in {None, ""}])
        return f"{path}?{query}" if query else path

    def of_sample(self, task_id: str, **changes: object) -> str:
        """Return the address of one sample, whose page links on through the list."""
        return self.link(f"/samples/{quote(task_id, safe='')}", **changes)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e12:
        raise InvalidInputError(f"{name} must be a number (got {text[:40]!r})")
    return value


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the screens."""
    records = console.records

    @app.get("/samples")
    async def samples_page(request: Request) -> HTMLResponse:
        query = request.query_params
        listing = Listing.of(query, time.time())
        after, before = query.get("after", ""), query.get("before", "")

        async def found() -> tuple[Answer[SamplePage], int]:
            tasks, left = await records.search(listing.chosen)
            key = ("page", listing.chosen, listing.order, after, before, None if tasks is None else len(tasks))

            def make(index: SampleIndex) -> SamplePage:
                return index.page(listing.chosen, listing.order, after=after, before=before, size=PAGE, tasks=tasks)

            answer = await records.answer(key, make)
            assert answer is not None, "it was waited for"
            return answer, left

        page, left = await while_connected(request, found())

        def values() -> dict[str, Any]:
            rows = page.value.rows.to_dicts()
            return {"page": page.value, "rows": rows, "parts_left": left, "listing": listing, "orders": list(Order)}

        made_of = (page.revision, page.value.total, left, listing.chosen)
        return await console.stored_page(request, "samples.html", made_of, values)

    @app.get("/samples/{task_id}")
    async def sample_page(request: Request, task_id: str) -> HTMLResponse:
        if request.headers.get("hx-request"):
            return HTMLResponse()  # a sample stays as it is
        listing = Listing.of(request.query_params, time.time())
        shown = await while_connected(request, _one(console, listing, task_id, request.query_params.get("beside", "")))
        return console.page(request, "sample.html", listing=listing, **shown)

    @app.get("/samples/{task_id}/conversation.txt")
    async def conversation_text(request: Request, task_id: str) -> Response:
        sample = await while_connected(request, _sample(console, task_id))
        # As it was stored, whatever is in it: a browser saves it as a file, and never renders it.
        headers = {"Content-Disposition": f'attachment; filename="{quote(task_id)}.txt"'}
        text = sample["conversation"].encode("utf-8", "replace")
        return Response(text, media_type="text/plain; charset=utf-8", headers=headers)


async def _one(console: Console, listing: Listing, task_id: str, beside: str) -> dict[str, Any]:
    """Return what the page of a sample shows."""
    records = console.records
    sample = await _sample(console, task_id)
    tasks, _ = await records.search(listing.chosen)

    def around(index: SampleIndex) -> dict[str, Any]:
        own = SampleFilter(environment=sample["environment"], index=sample["index"])
        others = index.page(own, Order.BEST, size=MOST_BESIDE)
        following = index.page(listing.chosen, listing.order, after=task_id, size=1, tasks=tasks)
        preceding = index.page(listing.chosen, listing.order, before=task_id, size=1, tasks=tasks)
        return {
            "others": [row for row in others.rows.to_dicts() if row["task_id"] != task_id],
            "more_others": max(0, others.total - MOST_BESIDE),
            "following": next(iter(following.rows["task_id"]), None),
            "preceding": next(iter(preceding.rows["task_id"]), None),
        }

    key = ("around", listing.chosen, listing.order, task_id, None if tasks is None else len(tasks))
    shown = await records.now(key, around)
    samples = [sample] + ([await _sample(console, beside)] if beside else [])
    return {**shown, "samples": samples, "messages": [messages_of(one["conversation"]) for one in samples]}


async def _sample(console: Console, task_id: str) -> dict[str, Any]:
    """Return a sample as it is stored, with its present score, error and validity, and its marks.

    Raises:
        NotFoundError: there is none.
    """
    index = await console.records.index()
    row = await console.records.now(("row", task_id), lambda index: index.row(task_id))
    part = index.parts.get(row["part"]) if row is not None else None
    sample = await console.records.store.sample(part, task_id) if part is not None else None
    if row is None or sample is None:
        more = " yet: parts of the store are still being read" if index.pending else ""
        raise NotFoundError(f"the store has no sample {task_id[:60]!r}{more}", next_step="It may have been deleted.")
    marks = (await console.records.store.visible()).marks.history.filter(pl.col("task_id") == task_id)
    said = {name: row[name] for name in ("score", "success", "error_kind", "invalid")}
    return {**sample, **said, "stored_score": sample["score"], "marks": marks.to_dicts()}


def messages_of(conversation: str) -> list[tuple[str, str, int]]:
    """Return role, text and number of characters left out of a conversation's messages, as many as a page shows.

    Control characters are written as escapes. A conversation that cannot be read becomes one message.
    """
    if not conversation:
        return []
    try:
        said = orjson.loads(conversation)
        found = [_message(one) for one in said]
    except (orjson.JSONDecodeError, TypeError, ValueError, KeyError):
        return [_shown("as it was stored", conversation)]
    shown = [_shown(role, text) for role, text in found[:MOST_MESSAGES]]
    if len(found) > MOST_MESSAGES:
        shown.append(("", f"{len(found) - MOST_MESSAGES:,} more messages", 0))
    return shown


def _message(one: Any) -> tuple[str, str]:
    role, content = (one["role"], one["content"]) if isinstance(one, dict) else one
    return str(role), content if isinstance(content, str) else orjson.dumps(content).decode()


def _shown(role: str, text: str) -> tuple[str, str, int]:
    # Line breaks and tabs stay; every other unprintable character is escaped.
    kept = re.sub(r"[^\n\t]+", lambda run: printable(run[0]), text[:MOST_CHARS].replace("\r\n", "\n"))
    return printable(role[:60]), kept, max(0, len(text) - MOST_CHARS)
