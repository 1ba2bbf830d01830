"""One episode of one model on one task, for inspection: nothing of it is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from headgate.config import Settings
from headgate.core import ChatReply, Clock, Message, SystemClock, sample_task
from headgate.core.errors import InvalidSettingError
from headgate.core.events import unheard
from headgate.elastic.service import Machine
from headgate.environments import EnvironmentSpec, EpisodeResult, converse, registry_of
from headgate.models import ChatClient, ClientSettings
from headgate.run.assembly import model_at_hand
from headgate.run.endpoints import EndpointChats
from headgate.run.request_side import RequestSide
from headgate.run.served import ServedModels

_RETRY_S: Final = 1.0

OnReply = Callable[[Sequence[Message], ChatReply], None]
"""Called with each reply, and the conversation before it, as soon as it arrives."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one episode.

    Attributes:
        result: how it ended, with the whole conversation.
        took_s: from the opening to the end.
        model_s: the part of it that the model's replies took.
    """

    spec: EnvironmentSpec
    model: str
    index: int
    result: EpisodeResult
    took_s: float
    model_s: float


async def trial(settings: Settings, environment: str, model: str, index: int, on_reply: OnReply | None = None) -> Trial:
    """Return how `model` does on task `index` of `environment`.

    Args:
        settings: of the roster, of requests, and of served environments.
        environment: its name, or that of a collection's member.
        model: its name in the roster, `name@revision`, or a baseline agent.
        index: from 0 to the environment's number of tasks minus one.
        on_reply: see `OnReply`.

    Raises:
        UnknownEnvironmentError: if there is no such environment.
        InvalidSettingError: if there is no such model or task.
        HeadgateError: if the environment cannot be used, or the roster cannot be read.
    """
    known = registry_of(settings).environment(environment)
    spec = known.spec
    if not 0 <= index < spec.data_length:
        raise InvalidSettingError(
            f"{environment} has the tasks 0 to {spec.data_length - 1} (got {index})",
            next_step="Give an --index in this range.",
        )
    clock = SystemClock()
    async with model_at_hand(settings, model) as asked, asking(settings, clock) as (requests, chats):
        requests.register(asked)
        if requests.engines is not None:
            await requests.engines.ready(asked.key)
        task = sample_task(
            campaign=settings.campaign,
            model=asked.key,
            environment=environment,
            sequence=index,
            data_length=spec.data_length,
            due_at=clock.wall(),
        )
        ask = chats.chat(asked, task, unheard)
        model_s = 0.0

        async def chat(messages: Sequence[Message]) -> ChatReply:
            nonlocal model_s
            reply = await ask(messages)
            model_s += reply.latency_s
            if on_reply is not None:
                on_reply(messages, reply)
            return reply

        began = clock.monotonic()
        result = await converse(known, task.index, task.seed, chat, model=asked.key)
        return Trial(spec, asked.key, index, result, clock.monotonic() - began, model_s)


@asynccontextmanager
async def asking(settings: Settings, clock: Clock) -> AsyncIterator[tuple[RequestSide, EndpointChats]]:
    """Yield what asks models outside a campaign, within the settings' limits."""
    sent = ClientSettings(deadline_s=settings.request_timeout_s, stream=settings.streaming)
    engines = ServedModels(Machine(), clock=clock, emit=unheard, request_s=settings.request_timeout_s, retry_s=_RETRY_S)
    engines.due = lambda _: 1
    async with ChatClient(sent) as client, engines:
        requests = RequestSide(settings, clock=clock, emit=unheard, engines=engines)
        yield requests, EndpointChats(client, requests, clock=clock)
