"""An environment on an AgentGym server, and those that the settings name."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from headgate.config import Settings
from headgate.core import Message
from headgate.core.errors import EnvironmentFailedError, InvalidSettingError, did_you_mean
from headgate.core.tasks import cancelled
from headgate.environments.agentgym.server import DIALECTS, AgentGymServer, Dialect, Step
from headgate.environments.answers import named_actions
from headgate.environments.protocol import BaselineKind, Continue, EnvironmentSpec, Score
from headgate.environments.uninterrupted import uninterrupted

ABANDON_TIMEOUT_S: Final = 5.0
"""How long an episode cancelled during the creation of its session waits for the session in order to end it."""

ACTION_CHARS: Final = 1_000
"""Longer actions are not sent: no valid action is nearly as long, and one that breaks the server voids the score."""

ONE_ACTION: Final = "Error: Only one 'Action' is allowed per response. Please adjust your response."
NO_ACTION: Final = "Error: No action was found. End your response with 'Action:' and the action on the next line."
TOO_LONG: Final = f"Error: An action has at most {ACTION_CHARS} characters. Please adjust your response."


class ServedEpisode:
    """One task on a server. Owned by one worker; holds a session and a connection until it is closed."""

    def __init__(self, environment: ServedEnvironment, server: AgentGymServer, session: int, told: str) -> None:
        self._environment = environment
        self._server = server
        self._session: int | None = session
        self._rounds = 0
        self._is_calling = False
        dialect = server.dialect
        self.opening = (
            Message("user", dialect.instructions),
            Message("assistant", dialect.consent),
            Message("user", told),
        )

    async def answer(self, reply: str) -> Continue | Score:
        """Perform the action in `reply`. The score is that of the last round, as in AgentGym.

        Raises:
            EnvironmentFailedError: if the server fails.
        """
        self._rounds += 1
        action, problem = sent_action(reply, self._server.dialect)
        step = Step(problem, 0.0, is_done=False) if action is None else await self._stepped(action)
        if step.is_done or self._rounds >= self._environment.spec.max_rounds:
            state = "over" if step.is_done else "not over"
            success = step.is_done and step.score >= self._server.dialect.pass_mark
            return Score(step.score, success=success, why=f"the server's task is {state}: rounds={self._rounds}")
        return Continue((Message("user", step.text),))

    async def close(self) -> None:
        """End the session, or keep it for reuse if the server cannot end sessions; close the connection.

        Raises:
            EnvironmentFailedError: if the server does not end it.
        """
        session, self._session = self._session, None
        async with self._server:
            if session is not None:
                await self._environment.give_back(self._server, session, may_be_used_again=not self._is_calling)

    async def _stepped(self, action: str) -> Step:
        assert self._session is not None  # a closed episode gets no replies
        self._is_calling = True
        step = await self._server.step(self._session, action)
        self._is_calling = False
        return step


class ServedEnvironment:
    """One of AgentGym's environments on the server at `url`. Lives as long as its campaign.

    Its spec has no chance level and no solver: all three baselines draw from the actions that the server lists.
    """

    def __init__(self, dialect: Dialect, url: str, *, timeout_s: float, max_rounds: int) -> None:
        self._dialect = dialect
        self._url = url
        self._timeout_s = timeout_s
        self._idle: list[int] = []  # sessions to reuse, of a server that cannot end them
        self.spec = EnvironmentSpec(
            name=dialect.name,
            summary=f"{dialect.task} (AgentGym server)",
            daily_rate=dialect.daily_rate,
            data_length=dialect.data_length,
            max_rounds=max_rounds,
            licence=dialect.licence,
            source=f"{dialect.environment} of WooooDyy/AgentGym, played at its server",
            solver_rate=0.0,
        )

    async def check(self) -> None:
        """Return if the server answers; creates no session.

        Raises:
            EnvironmentFailedError: if it does not.
        """
        async with AgentGymServer(self._dialect, self._url, self._timeout_s) as server:
            await server.greet()

    async def open(self, index: int, seed: int) -> ServedEpisode:
        """Start task `index`; `seed` is ignored, since servers accept only an index.

        Raises:
            EnvironmentFailedError: if the server fails.
        """
        del seed
        server = AgentGymServer(self._dialect, self._url, self._timeout_s)
        try:
            session, told = await self._begun(server, index)
        except BaseException:
            await uninterrupted(server.disconnect())
            raise
        return ServedEpisode(self, server, session, told)

    async def give_back(self, server: AgentGymServer, session: int, *, may_be_used_again: bool) -> None:
        """End `session`, or keep it for reuse if the server cannot end sessions and no call is in progress.

        Raises:
            EnvironmentFailedError: if the server does not end it.
        """
        if self._dialect.has_close:
            await server.close(session)
        elif may_be_used_again:
            self._idle.append(session)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Return any action that the server lists, or a harmless one; the solution is not known here."""
        del index, seed
        action = rng.choice(_listed(conversation[-1].content) or self._dialect.idle_actions)
        return f"Thought:\n{kind}\n\nAction:\n{action}"

    async def _begun(self, server: AgentGymServer, index: int) -> tuple[int, str]:
        """Return a session with task `index`, and the first message to the model."""
        if self._idle:
            session = self._idle.pop()
            try:
                return session, await server.reset(session, index)
            except EnvironmentFailedError:
                self._idle.clear()  # the server may have restarted; a new session will show
        session = await _created(server)
        try:
            return session, await server.reset(session, index)
        except BaseException:
            await uninterrupted(_ended(server, session))
            raise


def sent_action(reply: str, dialect: Dialect) -> tuple[str | None, str]:
    """Return the action in `reply` in the form to send, or None and a message to the model.

    More than one `Action:` is refused: the later ones respond to observations that the model made up.
    """
    named = list(named_actions(reply))
    if len(named) > 1:
        return None, ONE_ACTION
    action = named[0].strip(" \t`*") if named else ""
    if len(action) > ACTION_CHARS:
        return None, TOO_LONG
    if dialect.is_plain:
        action = " ".join(re.sub(r"[^A-Za-z0-9, ]+", "", action).split())
    return (action, "") if action else (None, NO_ACTION)


async def _created(server: AgentGymServer) -> int:
    """Return a new session. If cancelled meanwhile, end the session that the server may be creating."""
    creating = asyncio.ensure_future(server.create())
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        await uninterrupted(_abandoned(server, creating))
        raise


async def _abandoned(server: AgentGymServer, creating: asyncio.Future[int]) -> None:
    await asyncio.wait([creating], timeout=ABANDON_TIMEOUT_S)
    await cancelled(creating)
    if not creating.cancelled() and creating.exception() is None:
        await _ended(server, creating.result())


async def _ended(server: AgentGymServer, session: int) -> None:
    """End an unused session. An error of the server is ignored, since an earlier one is already being raised."""
    if server.dialect.has_close:
        with suppress(EnvironmentFailedError):
            await server.close(session)


def _listed(text: str) -> list[str]:
    """Return the actions that an observation of alfworld or babyai lists."""
    _, is_alfworld, actions = text.rpartition("\nAVAILABLE ACTIONS: ")
    if is_alfworld:
        return actions.split(",")
    _, is_babyai, actions = text.rpartition("\nAvailable actions: [")
    return re.findall(r'"([^"]+)"', actions) if is_babyai else []


def served_environments(settings: Settings) -> tuple[ServedEnvironment, ...]:
    """Return an environment for each server that the settings name, without contacting any.

    Raises:
        InvalidSettingError: if a server is set for a name that is not an AgentGym environment.
    """
    return tuple(
        ServedEnvironment(
            _dialect(environment), url, timeout_s=settings.agentgym_timeout_s, max_rounds=settings.agentgym_max_rounds
        )
        for environment, url in settings.agentgym_servers.items()
    )


def _dialect(environment: str) -> Dialect:
    known = {dialect.environment: dialect for dialect in DIALECTS}
    if environment not in known:
        hint = did_you_mean(environment, known)
        raise InvalidSettingError(
            f"agentgym_servers names {environment!r}, for which AgentGym has no server{hint}",
            next_step=f"Name one of {', '.join(known)}.",
        )
    return known[environment]
