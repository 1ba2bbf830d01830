"""An environment that is played at an AgentGym server, and those that the settings name."""

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
"""How long an episode that is cancelled while its session is made waits for the session, so as to end it."""

ACTION_CHARS: Final = 1_000
"""Longer actions are not sent: no action is nearly as long, and a server that breaks on one would void the score."""

ONE_ACTION: Final = "Error: Only one 'Action' is allowed per response. Please adjust your response."
NO_ACTION: Final = "Error: No action was found. End your response with 'Action:' and the action on the next line."
TOO_LONG: Final = f"Error: An action has at most {ACTION_CHARS} characters. Please adjust your response."


class ServedEpisode:
    """One task at a server. Owned by one worker; holds a session there and a connection until it is closed."""

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
        """Take the action in `reply`. The score is that of the last round, as in AgentGym.

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
        """End the session, or keep it for the next episode where the server ends none; let go of the connection.

        Raises:
            EnvironmentFailedError: if the server does not end it.
        """
        session, self._session = self._session, None
        async with self._server:
            if session is not None:
                await self._environment.give_back(self._server, session, may_be_used_again=not self._is_calling)

    async def _stepped(self, action: str) -> Step:
        assert self._session is not None  # nobody answers an episode that is closed
        self._is_calling = True
        step = await self._server.step(self._session, action)
        self._is_calling = False
        return step


class ServedEnvironment:
    """One of AgentGym's environments at the server of `url`. Lives as long as its campaign.

    Its spec has no chance level and no solver: all three baselines draw from the actions that the server lists.
    """

    def __init__(self, dialect: Dialect, url: str, *, timeout_s: float, max_rounds: int) -> None:
        self._dialect = dialect
        self._url = url
        self._timeout_s = timeout_s
        self._idle: list[int] = []  # sessions of a server that ends none
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
        """Return if the server answers; begins nothing.

        Raises:
            EnvironmentFailedError: if it does not.
        """
        async with AgentGymServer(self._dialect, self._url, self._timeout_s) as server:
            await server.greet()

    async def open(self, index: int, seed: int) -> ServedEpisode:
        """Begin task `index`; `seed` is not used, since servers take an index alone.

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
        """End `session`, or keep it where the server ends none and nothing is under way in it.

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
        """Reply with any action that the server lists, or one that does no harm; nobody knows the solution here."""
        del index, seed
        action = rng.choice(_listed(conversation[-1].content) or self._dialect.idle_actions)
        return f"Thought:\n{kind}\n\nAction:\n{action}"

    async def _begun(self, server: AgentGymServer, index: int) -> tuple[int, str]:
        """Return a session with task `index`, and what the model is told first."""
        if self._idle:
            session = self._idle.pop()
            try:
                return session, await server.reset(session, index)
            except EnvironmentFailedError:
                self._idle.clear()  # the server may have been started anew; a new session will tell
        session = await _created(server)
        try:
            return session, await server.reset(session, index)
        except BaseException:
            await uninterrupted(_ended(server, session))
            raise


def sent_action(reply: str, dialect: Dialect) -> tuple[str | None, str]:
    """Return the action in `reply` as the server is sent it, or None with what to tell the model.

    More than one `Action:` is refused: the later ones answer to observations that the model made up.
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
    """Return a new session. When cancelled meanwhile, end the one that the server may be making just now."""
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
    """End a session that nobody plays. If the server fails at that, what went wrong before is what counts."""
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
    """Return an environment for each server that the settings name; asks none of them.

    Raises:
        InvalidSettingError: if a server is named for what is no environment of AgentGym's.
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
            f"agentgym_servers names {environment!r}, which AgentGym has no server of{hint}",
            next_step=f"Name one of {', '.join(known)}.",
        )
    return known[environment]
