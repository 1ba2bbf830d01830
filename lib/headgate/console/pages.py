"""Turns templates into pages: what every page shows, and how times, numbers and untrusted text are written."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final

import jinja2
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup
from starlette.datastructures import QueryParams

from headgate import __version__
from headgate.config import Settings
from headgate.console.access import Access, Viewer
from headgate.console.asking import key_of
from headgate.console.listing import link
from headgate.console.records import Records
from headgate.console.sources import Sources
from headgate.reports import money
from headgate.telemetry import counted, duration, safe_text

MOST_CACHED: Final = 16_000_000
"""Characters of cached pages; a page that offers a thousand models has a hundred thousand."""

SPARK_WIDTH: Final = 96
SPARK_HEIGHT: Final = 20


class Console:
    """Renders pages, and holds what every screen needs. Owned by the application.

    A page is rendered once for all viewers who see the same: it is cached by address, by viewer, and by what it is made
    of, such as the revision of the sources' answers.

    Attributes:
        settings: settings with the store, and the tokens for the sources.
        sources: the watched sources, and their last answers.
        records: the stored samples.
        access: identifies viewers.
    """

    def __init__(
        self,
        settings: Settings,
        sources: Sources,
        records: Records,
        access: Access,
        screens: Sequence[tuple[str, str]],
    ) -> None:
        """Prepare to show `screens`, each an address and a title, in the order of the navigation."""
        self.settings, self.sources, self.records, self.access = settings, sources, records, access
        self._screens = screens
        self._form_key = secrets.token_urlsafe(24)  # stands in cached pages for the key of the viewer
        self._cached: OrderedDict[Hashable, str] = OrderedDict()
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("headgate.console"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            at=_moment,
            since=lambda then: _running("since", then, time.time() - then),
            until=lambda then: _running("until", then, then - time.time()),
            endpoint=key_of,
            money=money,
            counted=counted,
            count=lambda value: "" if value is None else f"{value:,.0f}",
            duration=lambda seconds: "" if seconds is None else duration(seconds),
            text=lambda value, chars=300: safe_text(str(value), limit_chars=chars),
            # Identifies a row across updates, so that ticks and the focus stay with the row they were meant for.
            row_id=lambda value: f"r{sha256(repr(value).encode()).hexdigest()[:16]}",
            spark=spark,
        )

    def page(self, request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page, or its live part if the page itself requests that.

        Args:
            request: the request; its viewer is known unless it is for the sign-in page.
            template: file name; it extends `base`, and has a block `live`.
            status: HTTP status of the response.
            values: what the template shows.
        """
        return self._answer(request, self._rendered(request, template, values), status)

    def kept(
        self, request: Request, template: str, made_of: Hashable, values: Callable[[], Mapping[str, Any]]
    ) -> HTMLResponse:
        """Return a page; `values` is called unless a page made of the same is cached."""
        viewer, is_part = _viewer_of(request), _is_part(request)
        # Only the frame around the live part names the viewer.
        who = viewer and (viewer.may_steer if is_part else (viewer.name, viewer.has_session, viewer.may_steer))
        key = (str(request.url), is_part, who, made_of)
        if key not in self._cached:
            self._cached[key] = self._rendered(request, template, values())
            while sum(map(len, self._cached.values())) > MOST_CACHED and len(self._cached) > 1:
                self._cached.popitem(last=False)
        self._cached.move_to_end(key)
        return self._answer(request, self._cached[key])

    def add_live(self, app: FastAPI, path: str, values: Callable[[QueryParams], dict[str, Any]]) -> None:
        """Add a page at `path`, whose template has the same name, that shows recent answers of the sources.

        The page is made once for all who request it: `values` gets the fields of the address for the first of them.
        """
        template = f"{path.strip('/') or 'now'}.html"

        @app.get(path)
        async def page(request: Request) -> HTMLResponse:
            await self.sources.fresh()
            return self.kept(request, template, self.sources.revision, lambda: values(request.query_params))

    async def stored_page(
        self, request: Request, template: str, made_of: Hashable, values: Callable[[], Mapping[str, Any]]
    ) -> HTMLResponse:
        """Return a page on what is stored, made once for all who request it while that stays the same.

        Args:
            request: the request.
            template: file name; see `page`.
            made_of: what `values` depends on besides the address, the index and the store's problem.
            values: what the template shows besides these two.
        """
        index, records = await self.records.index(), self.records
        return self.kept(
            request, template, (made_of, index.revision, records.problem),
            lambda: {"index": index, "records": records, **values()},
        )  # fmt: skip

    def _rendered(self, request: Request, template: str, values: Mapping[str, Any]) -> str:
        viewer = _viewer_of(request)
        return self._templates.get_template(template).render(
            base="part.html" if _is_part(request) else "base.html",
            screens=self._screens,
            path=request.url.path,
            query=request.query_params,
            link=partial(link, request.url.path, request.query_params),
            here=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            viewer=viewer,
            is_told=viewer is not None and request.method == "GET",  # the response to a form is not requested again
            form_key=Markup('<input type="hidden" name="form_key" value="{}">').format(self._form_key),
            may_steer=viewer is not None and viewer.may_steer,
            sources=self.sources,
            version=__version__,
            now=time.time(),
            **values,
        )

    def _answer(self, request: Request, text: str, status: int = 200) -> HTMLResponse:
        viewer = _viewer_of(request)
        return HTMLResponse(text.replace(self._form_key, "" if viewer is None else viewer.form_key), status)


def _is_part(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


def _viewer_of(request: Request) -> Viewer | None:
    found: Viewer | None = request.scope.get("state", {}).get("viewer")
    return found


def _moment(then: float | None) -> Markup:
    """Return a time of the wall clock; the page's script writes it in the reader's zone."""
    if then is None:
        return Markup("")
    moment = datetime.fromtimestamp(then, UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(
        moment.isoformat(timespec="seconds"), moment.strftime("%Y-%m-%d %H:%M:%S")
    )


def _running(side: str, then: float, seconds: float) -> Markup:
    """Return the time since a moment, or until it; the page's script keeps counting, however old a cached page is."""
    moment = datetime.fromtimestamp(then, UTC).isoformat(timespec="milliseconds")
    return Markup('<time data-runs="{}" datetime="{}">{}</time>').format(side, moment, duration(seconds))


def spark(values: Sequence[float | None], label: str = "") -> Markup:
    """Return a sparkline of figures, the size of a word; None, where nothing was known, leaves a gap."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Markup('<svg class="spark" viewBox="0 0 {} {}" aria-hidden="true"></svg>').format(
            SPARK_WIDTH, SPARK_HEIGHT
        )
    low, high = min(0.0, *known), max(*known)
    step, scale = SPARK_WIDTH / (len(values) - 1), (SPARK_HEIGHT - 4) / ((high - low) or 1.0)
    parts, part = [], ""
    for index, value in enumerate(values):
        if value is None:
            part = ""
            continue
        part = f"{'L' if part else 'M'}{index * step:.1f} {SPARK_HEIGHT - 2 - (value - low) * scale:.1f}"
        parts.append(part)
    said = f"{label}: now {known[-1]:,.4g}, {min(known):,.4g} to {high:,.4g}" if label else ""
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<title>{}</title><path d="{}"/></svg>'
    ).format(SPARK_WIDTH, SPARK_HEIGHT, said, said, "".join(parts))
