"""The console as an application: its screens, who may see them, and what every answer carries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from fastapi.sse import EventSourceResponse, format_sse_event
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from headgate.config import Settings
from headgate.console import corrections, gates, matrix, now, samples, scores, steering, why, workers
from headgate.console.access import COOKIE, SESSION_S, Access, Looking, form_of
from headgate.console.pages import Console
from headgate.console.records import Records
from headgate.console.sources import Sources
from headgate.core.errors import HeadgateError, UnauthorizedError
from headgate.net.hosts import check_site

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_FILES: Final = "/static/"
_OPEN: Final = (_FILES, "/sign-in", "/health")

MOST_STREAMS: Final = 300
"""Pages that are told; beyond them a page asks by itself, every ten seconds."""

EVERY_S: Final = 1.0
"""Time between two messages at least: several sources answer within it."""

_SILENCE_S: Final = 15.0
_RECHECK_S: Final = 5.0

_SCREENS: Final[tuple[tuple[str, str, Callable[[FastAPI, Console], None]], ...]] = (
    ("/", "Now", now.add_routes),
    ("/matrix", "Models", matrix.add_routes),
    ("/gates", "Gates", gates.add_routes),
    ("/why", "Why", why.add_routes),
    ("/samples", "Samples", samples.add_routes),
    ("/leaderboard", "Leaderboard", scores.add_routes),
    ("/workers", "Workers", workers.add_routes),
)
"""Address, title and routes of every screen, in the order of the navigation."""


def console_app(settings: Settings, sources: Sources, records: Records, access: Access) -> ASGIApp:
    """Return the console as an ASGI application.

    Args:
        settings: name the store, and hold the tokens for what is asked.
        sources: opened, and closed, by whoever serves the application.
        records: likewise.
        access: likewise.
    """
    app = FastAPI(title="Headgate console", docs_url=None, redoc_url=None, openapi_url=None)
    console = Console(settings, sources, records, access, [(path, title) for path, title, _ in _SCREENS])
    _add_frame(app, console)
    _add_stream(app, console)
    for forms in (steering, corrections):  # before the addresses of samples
        forms.add_routes(app, console)
    for _, _, add_routes in _SCREENS:
        add_routes(app, console)
    return _Guard(app, console)


def _add_frame(app: FastAPI, console: Console) -> None:
    app.mount("/static", StaticFiles(packages=[("headgate.console", "static")]))

    @app.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "healthy"})

    @app.get("/sign-in")
    async def sign_in_page(request: Request) -> HTMLResponse:
        return console.page(request, "sign_in.html", error="")

    @app.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        form = await form_of(request, None)
        there = form.get("there", "/")
        try:
            cookie = await console.access.sign_in(form.get("token", ""))
        except UnauthorizedError as error:
            return console.page(request, "sign_in.html", status=401, error=error.message, there=there)
        answer = RedirectResponse(there if there.startswith("/") and there[1:2] not in {"/", "\\"} else "/", 303)
        answer.set_cookie(
            COOKIE, cookie, max_age=round(SESSION_S), httponly=True, samesite="strict",
            secure=request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:"),
        )  # fmt: skip
        return answer

    @app.post("/sign-out")
    async def sign_out(request: Request, viewer: Looking) -> Response:
        await form_of(request, viewer)
        console.access.sign_out(request.headers)
        return RedirectResponse("/sign-in", 303)

    async def failed(request: Request, error: Exception) -> Response:
        shown = error if isinstance(error, HeadgateError) else None
        status = shown.http_status if shown else error.status_code if isinstance(error, HTTPException) else 500
        message = shown.message if shown else error.detail if isinstance(error, HTTPException) else "the page failed"
        step = shown.next_step if shown else "" if isinstance(error, HTTPException) else "The console's log says why."
        return console.page(request, "failed.html", status=status, message=message, next_step=step)

    for kind in (HeadgateError, HTTPException, Exception):
        app.add_exception_handler(kind, failed)


def _add_stream(app: FastAPI, console: Console) -> None:
    """Tell open pages that something has changed, so that they ask for their live part again."""
    sources, access = console.sources, console.access

    async def messages(request: Request) -> AsyncIterator[bytes]:
        # Ended with its connection: the server cancels what streams to nobody.
        with sources.watched():
            revision, checked_at = 0, time.monotonic()
            while not sources.is_closing:
                if time.monotonic() - checked_at > _RECHECK_S:
                    try:
                        await access.viewer(request.headers)
                    except HeadgateError:
                        return  # its token was revoked; the page asks again, and is told to sign in
                    checked_at = time.monotonic()
                now = await sources.changed(revision, _SILENCE_S)
                if now == revision:
                    yield format_sse_event(event="still", data_str=str(revision))
                    continue
                revision = now
                yield format_sse_event(event="tick", data_str=str(revision))
                await asyncio.sleep(EVERY_S)

    @app.get("/live")
    async def live(request: Request) -> Response:
        if sources.viewers >= MOST_STREAMS:
            return JSONResponse({"detail": "many pages are open already"}, 503, {"Retry-After": "10"})
        return EventSourceResponse(messages(request), headers={"X-Accel-Buffering": "no"})


@dataclass(frozen=True, slots=True)
class _Guard:
    """ASGI layer in front of every route: lets in those who may look, and adds what every answer carries."""

    app: ASGIApp
    console: Console

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                is_kept = scope["path"].startswith(_FILES) and message["status"] < HTTPStatus.BAD_REQUEST
                headers.setdefault("Cache-Control", "max-age=3600" if is_kept else "no-store")
            await send(message)

        scope.setdefault("state", {})
        answer = await self._refusal(scope)
        await (self.app if answer is None else answer)(scope, receive, send_with_headers)

    async def _refusal(self, scope: AsgiScope) -> Response | None:
        """Return the answer to whoever is not let in, None for those who are."""
        request, page = Request(scope), self.console.page
        headers = request.headers
        try:
            check_site(headers.get, scope["method"])
            if not scope["path"].startswith(_OPEN):
                scope["state"]["viewer"] = await self.console.access.viewer(headers)
        except UnauthorizedError as error:
            if scope["method"] == "GET" and headers.get("sec-fetch-site") == "cross-site":
                # A link in another site's page comes without the cookie; the same page asked for by ours has it.
                return page(request, "again.html")
            if headers.get("hx-request") or "text/html" not in headers.get("accept", ""):
                challenge = {"WWW-Authenticate": "Bearer", "HX-Refresh": "true"}
                return JSONResponse({"detail": error.message}, 401, challenge)
            return page(request, "sign_in.html", status=401, error="")
        except HeadgateError as error:
            message, step = error.message, error.next_step
            return page(request, "failed.html", status=error.http_status, message=message, next_step=step)
        return None
