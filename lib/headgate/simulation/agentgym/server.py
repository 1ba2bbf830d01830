"""The HTTP API of AgentGym's servers for babyai and textcraft, over the built-in environments."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from aiohttp import web

from headgate.environments import Continue, Episode, Score, environment

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
FaultKind = Literal["hang", "status", "error", "no_json", "exit"]


@dataclass(frozen=True, slots=True)
class Game:
    """The built-in environment of a game, and the text in its opening at which AgentGym's first observation begins."""

    environment: str
    begins_at: str


GAMES: Final = {
    "babyai": Game("agentgym:babyai", "\nGoal: "),
    "textcraft": Game("agentgym:textcraft", "\nCrafting commands:\n"),
}
"""The games by AgentGym's names."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the server in all calls of one path, after `after` good ones.

    Attributes:
        path: the path, such as `/step`.
        kind: never answer, answer status 500, answer 200 with an error, answer something other than JSON, or exit.
        after: number of calls of the path, from now on, that succeed.
        is_carried_out: whether a faulty call takes effect before the fault.
    """

    path: str
    kind: FaultKind
    after: int = 0
    is_carried_out: bool = False


@dataclass(slots=True)
class _Session:
    episode: Episode | None = None
    score: float = 0.0
    is_done: bool = False


class SimulatedServer:
    """State of one server. `app` serves it; `/faults` and `/sessions` are for tests.

    Attributes:
        is_hanging: set once a call hangs, for tests in the same event loop.
    """

    def __init__(self, game: str) -> None:
        self._game = GAMES[game]
        self._has_score = game == "babyai"
        self._numbers = itertools.count()
        self._sessions: dict[int, _Session] = {}
        self.created = 0
        self._faults: dict[str, Fault] = {}
        self.is_hanging = asyncio.Event()
        self._let_go = asyncio.Event()
        self.app = web.Application(middlewares=[self._faulty])
        self.app.add_routes([
            web.get("/", self._hello),
            web.post("/create", self._create),
            web.post("/reset", self._reset),
            web.post("/step", self._step),
            web.post("/close", self._close),
            web.post("/faults", self._plan_fault),
            web.get("/sessions", self._list_sessions),
        ])  # fmt: skip

    @property
    def open_sessions(self) -> tuple[int, ...]:
        """Sessions that have not been closed."""
        return tuple(self._sessions)

    def plan(self, fault: Fault) -> None:
        """Apply a fault from now on, replacing an earlier one for its path."""
        self._faults[fault.path] = fault

    def let_go(self) -> None:
        """Answer the hanging calls."""
        self._let_go.set()

    @web.middleware
    async def _faulty(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        fault = self._faults.get(request.path)
        if fault is None or fault.after > 0:
            if fault is not None:
                self._faults[request.path] = replace(fault, after=fault.after - 1)
            return await handler(request)
        answer = await handler(request) if fault.is_carried_out else None
        if fault.kind == "hang":
            self.is_hanging.set()
            await self._let_go.wait()
            return await handler(request) if answer is None else answer
        if fault.kind == "exit":
            os._exit(1)
        if fault.kind == "no_json":
            return web.Response(text="<html>Bad gateway</html>")
        if fault.kind == "status":
            return web.Response(status=500, text="Internal Server Error")
        return web.json_response({"error": "simulated"})

    async def _hello(self, _: web.Request) -> web.Response:
        return web.json_response("This is a simulated environment.")

    async def _create(self, request: web.Request) -> web.Response:
        if not self._has_score and not request.can_read_body:
            return web.json_response({"detail": "body required"}, status=422)
        number = next(self._numbers)
        self._sessions[number] = _Session()
        self.created += 1
        return web.json_response({"id": number})

    async def _reset(self, request: web.Request) -> web.Response:
        body = await request.json()
        session = self._sessions.get(body["id"])
        if session is None:
            return web.json_response({"error": f"The id {body['id']} is not valid."})
        session.episode = await environment(self._game.environment).open(body["data_idx"], 0)
        session.score, session.is_done = 0.0, False
        text = session.episode.opening[0].content
        return web.json_response(self._told(session, text[text.index(self._game.begins_at) + 1 :]))

    async def _step(self, request: web.Request) -> web.Response:
        body = await request.json()
        session = self._sessions.get(body["id"])
        if session is None or session.episode is None:
            return web.json_response({"error": f"The id {body['id']} is not valid."})
        if session.is_done:
            return web.json_response({"error": f"The task with environment {body['id']} has finished."})
        answer = await session.episode.answer(f"Action: {body['action']}")
        if isinstance(answer, Score):
            session.score, session.is_done = answer.value, True
            return web.json_response(self._told(session, answer.why))
        assert isinstance(answer, Continue)  # neither game needs a judge
        return web.json_response(self._told(session, answer.messages[0].content))

    async def _close(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response(self._sessions.pop(body["id"], None) is not None)

    async def _plan_fault(self, request: web.Request) -> web.Response:
        self.plan(Fault(**await request.json()))
        return web.json_response({})

    async def _list_sessions(self, _: web.Request) -> web.Response:
        return web.json_response({"open": self.open_sessions, "created": self.created})

    def _told(self, session: _Session, text: str) -> dict[str, Any]:
        told = {"observation": text, "reward": session.score, "done": session.is_done}
        return told | {"score": session.score} if self._has_score else told
