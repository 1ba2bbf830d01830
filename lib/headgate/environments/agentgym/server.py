"""One session on an AgentGym server: its calls, their deadlines, and checks of the answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import orjson

from headgate.core import json_value, redacted
from headgate.core.errors import EnvironmentFailedError

_PROMPTS: Final = Path(__file__).with_name("prompts")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The HTTP dialect of one environment's server. Immutable.

    Attributes:
        task: summary of the task, for listings.
        consent: the reply to the instructions put in the model's mouth (AgentGym's).
        create_body: body of `POST /create`; None for none.
        id_key: key of the session in requests.
        index_key: key of the task in `POST /reset`.
        reset_body: further fields of that request.
        opening_keys: keys of its answer to show to the model, in this order; empty to use `GET /observation`.
        text_key: key of the answer to `POST /step` to show to the model.
        score_key: key of the score in that answer.
        full_score: the highest score.
        pass_mark: minimum share of the full score for a success, once the episode is done.
        has_close: whether there is a `POST /close`; sessions of other servers are reused.
        lists_actions: whether answers contain `available_actions`, which the model is shown as well.
        is_plain: whether actions are sent without punctuation, as AgentGym's client does.
        idle_actions: harmless actions, for baselines where the server lists none.
    """

    environment: str
    task: str
    daily_rate: float
    data_length: int
    licence: str
    consent: str = "OK. I'll follow your instructions and try my best to solve the task."
    create_body: Mapping[str, Any] | None = None
    id_key: str = "id"
    index_key: str = "data_idx"
    reset_body: Mapping[str, Any] = field(default_factory=dict)
    opening_keys: tuple[str, ...] = ("observation",)
    text_key: str = "observation"
    score_key: str = "reward"
    full_score: float = 1.0
    pass_mark: float = 1.0
    has_close: bool = True
    lists_actions: bool = False
    is_plain: bool = False
    idle_actions: tuple[str, ...] = ("inventory",)

    @property
    def name(self) -> str:
        """Its name in Headgate; ends in `-server`, since Headgate's own environments have AgentGym's names."""
        return f"agentgym:{self.environment}-server"

    @property
    def instructions(self) -> str:
        """AgentGym's instructions to the model."""
        return (_PROMPTS / f"{self.environment}.txt").read_text(encoding="utf-8").rstrip("\n")


DIALECTS: Final = (
    Dialect(
        environment="alfworld",
        task="Do a household task in a house described in words",
        daily_rate=80.0,
        data_length=2_500,
        licence="MIT",
        index_key="game",
        reset_body={"world_type": "Text"},
        has_close=False,
        lists_actions=True,
        idle_actions=("look",),
    ),
    Dialect(
        environment="babyai",
        task="Carry out a mission in a grid world described in words",
        daily_rate=120.0,
        data_length=4_000,
        licence="Apache-2.0",
        score_key="score",
        # minigrid's reward for a success is 1 - 0.9 * steps / steps allowed.
        pass_mark=0.1,
        is_plain=True,
        idle_actions=("turn left", "turn right"),
    ),
    Dialect(
        environment="sciworld",
        task="Do an elementary science experiment described in words",
        daily_rate=80.0,
        data_length=4_639,
        licence="Apache-2.0",
        opening_keys=("task_description", "observation"),
        score_key="score",
        full_score=100.0,
        idle_actions=("look around", "inventory", "wait1"),
    ),
    Dialect(
        environment="textcraft",
        task="Craft an item from recipes that are listed among others",
        daily_rate=100.0,
        data_length=582,
        licence="MIT",
        create_body={"commands": None, "goal": None},
        is_plain=True,
    ),
    Dialect(
        environment="webshop",
        task="Buy what an instruction asks for in a web shop described in words",
        daily_rate=100.0,
        data_length=200,
        licence="MIT; products were scraped",
        consent="Ok.",
        id_key="env_idx",
        index_key="session_id",
        opening_keys=(),
        text_key="state",
        has_close=False,
        idle_actions=("click[back to search]",),
    ),
)
"""Every AgentGym environment for which a server can be configured."""


SETTING: Final = "agentgym_servers"
"""The setting with the servers' addresses; errors name it."""

CLOSE_TIMEOUT_S: Final = 5.0
"""A session not closed by then is given up; an episode has 10 s to close, including the connection."""

MAX_ANSWER_BYTES: Final = 2**20
"""Maximum size of an answer, decompressed: the model is shown all of it."""

_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Step:
    """The result of an action.

    Attributes:
        score: share of the full score, in [0, 1].
    """

    text: str
    score: float
    is_done: bool


class AgentGymServer:
    """Calls to one server over one connection. Owned by one episode; opened and closed in one event loop."""

    def __init__(self, dialect: Dialect, url: str, timeout_s: float) -> None:
        import aiohttp  # noqa: PLC0415 - too slow to import for every command that lists environments

        from headgate.net.connector import READ_BUFFER_BYTES, Connector  # noqa: PLC0415 - as above

        self.dialect = dialect
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._http = aiohttp.ClientSession(connector=Connector(), read_bufsize=READ_BUFFER_BYTES)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def greet(self) -> None:
        """Return if the server answers at all."""
        await self._call("GET", "/", {}, timeout_s=CLOSE_TIMEOUT_S)

    async def create(self) -> int:
        """Return the id of a new session."""
        answer = await self._call("POST", "/create", self.dialect.create_body)
        session = answer if isinstance(answer, int) else self._item("/create", answer, "id")
        if isinstance(session, bool) or not isinstance(session, int):
            raise self._failed(f"answered POST /create with {session!r:.80} instead of a session's number")
        return session

    async def reset(self, session: int, index: int) -> str:
        """Start task `index`; return the first message to the model."""
        dialect = self.dialect
        wanted = {dialect.id_key: session, dialect.index_key: index, **dialect.reset_body}
        answer = await self._call("POST", "/reset", wanted)
        if not dialect.opening_keys:
            observed = await self._call("GET", "/observation", {dialect.id_key: session})
            return self._text("/observation", observed)
        told = [self._text("/reset", self._item("/reset", answer, key)) for key in dialect.opening_keys]
        return "\n".join(told) + self._actions("/reset", answer)

    async def step(self, session: int, action: str) -> Step:
        """Perform `action`; return its result."""
        dialect = self.dialect
        answer = await self._call("POST", "/step", {dialect.id_key: session, "action": action})
        text = self._text("/step", self._item("/step", answer, dialect.text_key)) + self._actions("/step", answer)
        score = self._item("/step", answer, dialect.score_key)
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise self._failed(f"answered POST /step with the {dialect.score_key} {score!r:.80}, not a number")
        # sciworld returns -100 for a task that has failed for good; babyai adds up rewards.
        share = min(1.0, max(0.0, score / dialect.full_score))
        return Step(text, share, self._item("/step", answer, "done") is True)

    async def close(self, session: int) -> None:
        """End `session` on a server that can end sessions."""
        await self._call("POST", "/close", {self.dialect.id_key: session}, timeout_s=CLOSE_TIMEOUT_S)

    async def disconnect(self) -> None:
        """Close the connection; idempotent."""
        await self._http.close()

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, timeout_s: float | None = None
    ) -> Any:
        """Return the server's parsed answer.

        Raises:
            EnvironmentFailedError: if it does not answer in time, its status is not 200, its body is not JSON, or it
                reports a failure, which AgentGym's servers do with status 200 and a key `error`.
        """
        import aiohttp  # noqa: PLC0415 - as above

        limit_s = min(self._timeout_s, timeout_s or self._timeout_s)
        given: dict[str, Any] = {"params": body} if method == "GET" else {"json": body} if body is not None else {}
        timeout = aiohttp.ClientTimeout(total=limit_s)
        try:
            url, given["allow_redirects"] = self._url + path, False  # to read what only this machine may
            async with self._http.request(method, url, timeout=timeout, **given) as response:
                status = response.status
                content = await response.content.readexactly(MAX_ANSWER_BYTES + 1)
        except asyncio.IncompleteReadError as ended:
            content = ended.partial  # the whole answer, which is nearly always shorter than the limit
        except TimeoutError:
            raise self._failed(f"did not answer {method} {path} within {limit_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._failed(f"cannot be reached for {method} {path}: {type(error).__name__}: {error}") from None
        if status != 200:
            said = "a redirect, which is not followed" if 300 <= status < 400 else _shown(content)
            raise self._failed(f"answered {method} {path} with status {status}: {said}")
        if len(content) > MAX_ANSWER_BYTES:
            raise self._failed(f"answered {method} {path} with more than {MAX_ANSWER_BYTES:,} bytes")
        try:
            answer = json_value(content)
        except orjson.JSONDecodeError as error:
            said = f"{_shown(content)} ({error.msg})"
            raise self._failed(f"answered {method} {path} with invalid JSON: {said}") from None
        if isinstance(answer, dict) and "error" in answer:
            raise self._failed(f"failed at {method} {path}: {str(answer['error'])[:_SHOWN_CHARS]}")
        return answer

    def _item(self, path: str, answer: Any, key: str) -> Any:
        if not isinstance(answer, dict) or key not in answer:
            raise self._failed(
                f"answered {path} without {key!r}; is it AgentGym's server of {self.dialect.environment}?"
            )
        return answer[key]

    def _text(self, path: str, found: Any) -> str:
        if not isinstance(found, str):
            raise self._failed(f"answered {path} with {found!r:.80} instead of text")
        return found

    def _actions(self, path: str, answer: Any) -> str:
        if not self.dialect.lists_actions:
            return ""
        actions = self._item(path, answer, "available_actions")
        if not isinstance(actions, list):
            raise self._failed(f"answered {path} with {actions!r:.80} instead of a list of actions")
        return f"\nAVAILABLE ACTIONS: {','.join(map(str, actions))}"

    def _failed(self, what: str) -> EnvironmentFailedError:
        return EnvironmentFailedError(
            redacted(f"the AgentGym server of {self.dialect.environment} at {self._url} {what}".rstrip(".")),
            next_step=f"Check the server's log, restart it, or correct its address in `{SETTING}`.",
        )


def _shown(content: bytes) -> str:
    return repr(content[:_SHOWN_CHARS].decode(errors="replace"))
