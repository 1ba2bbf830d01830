"""Who uses the console, and what they may do: tokens, sessions in cookies, and keys that prove a form is ours."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from hmac import compare_digest
from typing import Annotated, Final
from urllib.parse import parse_qsl

from fastapi import Depends
from starlette.datastructures import Headers, ImmutableMultiDict
from starlette.requests import Request, cookie_parser

from headgate.core import Secret
from headgate.core.errors import CrossSiteError, ForbiddenError, InvalidInputError, UnauthorizedError
from headgate.net.authority import Authority, Caller, Refused
from headgate.net.hosts import HostNames
from headgate.net.refusals import token_of
from headgate.net.tokens import Scope

COOKIE: Final = "headgate_console"
SESSION_S: Final = 12 * 3_600.0
"""One shift; then the token is required again."""

MOST_SESSIONS: Final = 1_000
MOST_FORM_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who may read the console.

    Attributes:
        name: name of the token, which steering records; `local` on loopback without tokens.
        may_steer: whether they may change anything.
        form_key: secret in each of their forms, unknown to other sites' pages; not needed with a token in the header.
        has_session: whether they signed in with a cookie, and so can sign out.
    """

    name: str
    may_steer: bool
    form_key: str
    has_session: bool = False


@dataclass(frozen=True, slots=True)
class _Session:
    token: Secret
    form_key: str
    ends_at: float


class Access:
    """Identifies viewers. Owned by the console; used on one event loop.

    Invariant: at most `MOST_SESSIONS` sessions; the oldest is dropped.

    Args:
        token: one that allows everything; None if there is none.
        authority: knows further tokens; None if there are none.
        host: a further host name of this server, accepted when no token is required.
    """

    def __init__(self, token: Secret | None = None, authority: Authority | None = None, host: str = "") -> None:
        self._token = token
        self._authority = authority
        self._names = HostNames(host)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._local = Viewer("local", may_steer=True, form_key=secrets.token_urlsafe(24))

    async def viewer(self, headers: Headers) -> Viewer:
        """Return the viewer who sent a request.

        Raises:
            MisdirectedError: it names another host, and no token is required.
            UnauthorizedError: it has neither a session nor a token that may read.
        """
        if self._token is None and self._authority is None:
            self._names.check(headers.get("host"))
            return self._local
        if text := token_of(headers.get("authorization")):
            return await self._holder(Secret(text), "", has_session=False)
        session = self._sessions.get(cookie_parser(headers.get("cookie", "")).get(COOKIE, ""))
        if session is None or session.ends_at < time.monotonic():
            raise UnauthorizedError("sign in to see this page", next_step="Sign in with a token.")
        return await self._holder(session.token, session.form_key, has_session=True)

    async def sign_in(self, text: str) -> str:
        """Return the cookie of a new session for the holder of a token.

        Raises:
            UnauthorizedError: the token is unknown, or may not read.
        """
        token = Secret(text.strip())
        await self._holder(token, "", has_session=True)
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = _Session(token, secrets.token_urlsafe(24), time.monotonic() + SESSION_S)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return cookie

    def sign_out(self, headers: Headers) -> None:
        """End the session of a request; nothing where it has none."""
        self._sessions.pop(cookie_parser(headers.get("cookie", "")).get(COOKIE, ""), None)

    async def _holder(self, token: Secret, form_key: str, *, has_session: bool) -> Viewer:
        text = token.reveal()
        if self._token is not None and compare_digest(text.encode(), self._token.reveal().encode()):
            return Viewer("console token", may_steer=True, form_key=form_key, has_session=has_session)
        refused = "the token is not known"
        if self._authority is not None:
            match await self._authority.identify(text, time.time()):
                case Caller(teams=None) as caller if caller.has(Scope.READ):
                    return Viewer(caller.name, caller.has(Scope.STEER), form_key, has_session)
                case Refused() as verdict:
                    refused = verdict.message
                case _:
                    refused = "the token lacks the scope 'read', or is bound to teams"
        raise UnauthorizedError(refused, next_step="Sign in with a token that has the scope `read`.")


Form = ImmutableMultiDict[str, str]
"""The fields of a form; if several have one name, `get` returns the last and `getlist` all."""


async def form_of(request: Request, viewer: Viewer | None) -> Form:
    """Return the fields of a form that was sent.

    Args:
        request: the request with the form.
        viewer: the viewer whose form it must be; None for the sign-in page, whose form changes nothing.

    Raises:
        CrossSiteError: the form does not carry the viewer's key.
        InvalidInputError: it is larger than `MOST_FORM_BYTES`, or not the form of a page.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_FORM_BYTES:
            raise InvalidInputError(f"a form has at most {MOST_FORM_BYTES} bytes")
    try:
        fields = Form(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1_000))
    except ValueError as error:
        raise InvalidInputError(f"the form cannot be read: {error}") from None
    if viewer is not None:
        is_program = request.headers.get("authorization") is not None
        if not is_program and not compare_digest(fields.get("form_key", "").encode(), viewer.form_key.encode()):
            raise CrossSiteError("the form is of an earlier session, or of another site; load the page again")
    return fields


def viewer_of(request: Request) -> Viewer:
    """Return the viewer who sent an admitted request."""
    viewer: Viewer = request.scope["state"]["viewer"]
    return viewer


def steerer_of(request: Request) -> Viewer:
    """Return the viewer who sent a request, if they may make changes.

    Raises:
        ForbiddenError: they may only read.
    """
    viewer = viewer_of(request)
    if not viewer.may_steer:
        raise ForbiddenError(f"the token of {viewer.name!r} lacks the scope 'steer'")
    return viewer


Looking = Annotated[Viewer, Depends(viewer_of)]
Steering = Annotated[Viewer, Depends(steerer_of)]
