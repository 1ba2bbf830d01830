"""One session at an AgentGym server: its calls, their deadlines, and what is wrong with an answer."""

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
    """What one environment's server is asked and answers. Never changes.

    Attributes:
        task: what is to be done, for listings.
        consent: what the model is made to reply to the instructions (AgentGym's).
        create_body: what `POST /create` is sent; None for nothing.
        id_key: how requests name the session.
        index_key: how `POST /reset` names the task.
        reset_body: what it is sent beside.
        opening_keys: what of its answer the model is told, in this order; empty where `GET /observation` says it.
        text_key: what of the answer to `POST /step` the model is told.
        score_key: what of that answer is the score.
        full_score: its highest value.
        pass_mark: share of it at which a success begins, for an episode that is done.
        has_close: whether there is a `POST /close`; sessions of other servers are used again.
        lists_actions: whether answers hold `available_actions`, which the model is told as well.
        is_plain: whether actions are sent without punctuation, as AgentGym's client does.
        idle_actions: actions that do no harm, for baselines where the server lists none.
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
        """Its name in Headgate; `-server`, since environments of our own have AgentGym's names."""
        return f"agentgym:{self.environment}-server"

    @property
    def instructions(self) -> str:
        """AgentGym's own words to the model."""
        return (_PROMPTS / f"{self.environment}.txt").read_text(encoding="utf-8").rstrip("\n")


DIALECTS: Final = (
    Dialect(
        environment="alfworld",
        task="Do a household task in a house told in words",
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
        task="Carry out a mission in a grid world told in words",
        daily_rate=120.0,
        data_length=4_000,
        licence="Apache-2.0",
        score_key="score",
        # minigrid's reward of a success: 1 - 0.9 * steps / steps allowed.
        pass_mark=0.1,
        is_plain=True,
        idle_actions=("turn left", "turn right"),
    ),
    Dialect(
        environment="sciworld",
        task="Do an elementary science experiment told in words",
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
        task="Craft a thing by recipes told among others",
        daily_rate=100.0,
        data_length=582,
        licence="MIT",
        create_body={"commands": None, "goal": None},
        is_plain=True,
    ),
    Dialect(
        environment="webshop",
        task="Buy what an instruction asks for in a web shop told in words",
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
"""Every environment of AgentGym that a server can be configured for."""


SETTING: Final = "agentgym_servers"
"""The setting that says where servers are; errors name it."""

CLOSE_TIMEOUT_S: Final = 5.0
"""A session that is not closed by then is given up; an episode has 10 s to close, the connection included."""

MAX_ANSWER_BYTES: Final = 2**20
"""Of one answer, unpacked: the model is told all of it."""

_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Step:
    """What came of an action.

    Attributes:
        score: share of the full score, in [0, 1].
    """

    text: str
    score: float
    is_done: bool


class AgentGymServer:
    """Calls to one server over one connection. Owned by one episode; opened and closed in one event loop."""

    def __init__(self, dialect: Dialect, url: str, timeout_s: float) -> None:
        import aiohttp  # noqa: PLC0415 - every command that names environments would wait for it

        self.dialect = dialect
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._http = aiohttp.ClientSession()

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
            raise self._failed(f"answered POST /create with {session!r:.80}, not with the number of a session")
        return session

    async def reset(self, session: int, index: int) -> str:
        """Begin task `index`; return what the model is told."""
        dialect = self.dialect
        wanted = {dialect.id_key: session, dialect.index_key: index, **dialect.reset_body}
        answer = await self._call("POST", "/reset", wanted)
        if not dialect.opening_keys:
            observed = await self._call("GET", "/observation", {dialect.id_key: session})
            return self._text("/observation", observed)
        told = [self._text("/reset", self._item("/reset", answer, key)) for key in dialect.opening_keys]
        return "\n".join(told) + self._actions("/reset", answer)

    async def step(self, session: int, action: str) -> Step:
        """Take `action`; return what came of it."""
        dialect = self.dialect
        answer = await self._call("POST", "/step", {dialect.id_key: session, "action": action})
        text = self._text("/step", self._item("/step", answer, dialect.text_key)) + self._actions("/step", answer)
        score = self._item("/step", answer, dialect.score_key)
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise self._failed(f"answered POST /step with the {dialect.score_key} {score!r:.80}, not with a number")
        # sciworld says -100 for a task that is failed for good; babyai adds rewards up.
        share = min(1.0, max(0.0, score / dialect.full_score))
        return Step(text, share, self._item("/step", answer, "done") is True)

    async def close(self, session: int) -> None:
        """End `session` at a server that lets sessions end."""
        await self._call("POST", "/close", {self.dialect.id_key: session}, timeout_s=CLOSE_TIMEOUT_S)

    async def disconnect(self) -> None:
        """Let go of the connection; legal more than once."""
        await self._http.close()

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, timeout_s: float | None = None
    ) -> Any:
        """Return what the server answers.

        Raises:
            EnvironmentFailedError: if it does not answer in time, answers another status than 200 or no JSON, or says
                that it failed, which its servers do with status 200 and an object `error`.
        """
        import aiohttp  # noqa: PLC0415 - as above

        limit_s = min(self._timeout_s, timeout_s or self._timeout_s)
        given: dict[str, Any] = {"params": body} if method == "GET" else {"json": body} if body is not None else {}
        timeout = aiohttp.ClientTimeout(total=limit_s)
        try:
            async with self._http.request(method, self._url + path, timeout=timeout, **given) as response:
                status = response.status
                content = await response.content.readexactly(MAX_ANSWER_BYTES + 1)
        except asyncio.IncompleteReadError as ended:
            content = ended.partial  # all of it, as it nearly always is
        except TimeoutError:
            raise self._failed(f"did not answer {method} {path} within {limit_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._failed(f"cannot be reached for {method} {path}: {type(error).__name__}: {error}") from None
        if status != 200:
            raise self._failed(f"answered {method} {path} with status {status}: {_shown(content)}")
        if len(content) > MAX_ANSWER_BYTES:
            raise self._failed(f"answered {method} {path} with more than {MAX_ANSWER_BYTES:,} bytes")
        try:
            answer = json_value(content)
        except orjson.JSONDecodeError as error:
            said = f"{_shown(content)} ({error.msg})"
            raise self._failed(f"answered {method} {path} with what is no JSON: {said}") from None
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
            raise self._failed(f"answered {path} with {found!r:.80} where a text was due")
        return found

    def _actions(self, path: str, answer: Any) -> str:
        if not self.dialect.lists_actions:
            return ""
        actions = self._item(path, answer, "available_actions")
        if not isinstance(actions, list):
            raise self._failed(f"answered {path} with {actions!r:.80} where a list of actions was due")
        return f"\nAVAILABLE ACTIONS: {','.join(map(str, actions))}"

    def _failed(self, what: str) -> EnvironmentFailedError:
        return EnvironmentFailedError(
            redacted(f"the AgentGym server of {self.dialect.environment} at {self._url} {what}".rstrip(".")),
            next_step=f"Look at the server's log, start it again, or correct its address in `{SETTING}`.",
        )


def _shown(content: bytes) -> str:
    return repr(content[:_SHOWN_CHARS].decode(errors="replace"))
