"""The models of a campaign, behind their endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from headgate.admission import CallWatch, Correlation
from headgate.core import Chat, ChatError, ChatReply, Clock, ErrorKind, Message, Model, Task
from headgate.core.errors import AdmissionDeniedError
from headgate.core.events import Emit, RequestFinished
from headgate.models import TaskReference
from headgate.run.batch_lane import BatchLane
from headgate.run.budgets.conversation import conversation_budget
from headgate.run.matrix import seeded
from headgate.run.request_side import RequestSide, in_batch
from headgate.scheduling import RetryLaterError


class ChatSender(Protocol):
    """What sends one attempt: `headgate.models.ChatClient`, or a double of it in a simulation."""

    async def chat(self, model: Model, messages: Sequence[Message], *, task_header: str | None = None) -> ChatReply:
        """Return the reply of one attempt; raises `ChatError` when there is none."""


class EndpointChats:
    """Answers by asking each model's endpoint. Implements `ChatSource`; one per campaign, on one client.

    Every attempt goes through the executor of the request side: no request bypasses it.
    """

    def __init__(self, client: ChatSender, requests: RequestSide, *, clock: Clock) -> None:
        self._client = client
        self._requests = requests
        self._clock = clock

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:
        """Return a chat that asks `model` on behalf of `task`."""
        engines = self._requests.engines
        client = self._client if model.serve is None or engines is None else engines
        return _Conversation(client, self._requests, self._clock, model, task, emit, trace_id).answer


class _Watch(CallWatch):
    """Tells the campaign when a request of one task goes idle and when it resumes."""

    __slots__ = ("_requests", "_task_id")

    def __init__(self, requests: RequestSide, task_id: str) -> None:
        super().__init__()
        self._requests = requests
        self._task_id = task_id

    def idle(self) -> None:
        if not self.is_idle:
            self.is_idle = True
            self._requests.idle(self._task_id)

    def busy(self) -> None:
        self.is_idle = False
        self._requests.busy(self._task_id)


class _Conversation:
    """Sends the requests of one episode, one after the other."""

    def __init__(
        self,
        client: ChatSender,
        requests: RequestSide,
        clock: Clock,
        model: Model,
        task: Task,
        emit: Emit,
        trace_id: str,
    ) -> None:
        self._client = client
        self._requests = requests
        self._now = clock.monotonic
        self._model = model
        self._asked = seeded(model, task.request_seed)
        self._task, self._task_id = task, task.task_id
        self._environment = task.environment
        self._batched = requests.batches if model.serve is None else None
        self._header = str(TaskReference(task.environment, task.index, task.seed, task.sequence))
        self._emit = emit
        self._trace_id = trace_id
        # Stages of one sample share its trace id, but their request ids must differ.
        stage = "" if task.stage.startswith("sample") else f".{task.stage}"
        self._request = f"{trace_id or task.task_id}{stage}"
        self._number = 0
        self._budget = conversation_budget(requests.budgets, self._asked, task.task_id, task.environment)

    async def answer(self, messages: Sequence[Message]) -> ChatReply:
        """Return the reply to `messages`; its `attempts` and `wait_s`, or the error's, count every attempt.

        Raises:
            ChatError: if there is none; BUDGET and DAILY_BUDGET if the request does not fit, before it is sent.
        """
        self._number += 1
        batched = self._batched
        lane = "now" if batched is None else self._lane(batched)
        asked = self._asked if self._budget is None else await self._budget.before(messages, lane)
        if batched is not None and (known := await self._from_batch(batched, asked, messages)) is not None:
            return known
        request_id = f"{self._request}.{self._number}"
        watch = _Watch(self._requests, self._task_id)
        is_rated = self._requests.is_rated(self._model)
        tokens = self._requests.needs.expected(asked, self._environment, messages) if is_rated else (0, 0)
        told = Correlation(request_id, 1, self._task_id, self._trace_id)
        item = self._requests.item(self._model, told, tokens=tokens)

        attempt = partial(self._attempt, asked, messages, watch, request_id)
        try:
            reply = await self._requests.executor.call(item, attempt, watch)
        except BaseException as error:
            if self._budget is not None:
                self._budget.failed(watch.attempts)
            if isinstance(error, ChatError):
                error.attempts, error.wait_s = watch.attempts, watch.wait_s
            if isinstance(error, AdmissionDeniedError):
                raise _not_admitted(error, watch) from error
            raise
        if is_rated:
            self._requests.needs.answered(self._model, self._environment, messages, reply)
        whole = reply.booked(watch.wait_s, watch.attempts, self._cost_of(reply))
        if batched is not None and batched.keeps(self._task):
            await batched.keep(self._model, self._task, self._number, messages, whole)
        if self._budget is not None:
            self._budget.after(messages, whole)
        return whole

    def _lane(self, batched: BatchLane) -> str:
        """Return how to send the request, and release what was reserved for it while it was in a batch."""
        self._requests.budgets.ended(in_batch(self._task_id))
        return batched.goes(self._model, self._task) if self._number == 1 else "now"

    async def _from_batch(self, batched: BatchLane, asked: Model, messages: Sequence[Message]) -> ChatReply | None:
        """Return the reply that came from a batch; None if the request is not sent in one.

        Raises:
            RetryLaterError: if it is sent in a batch and has no reply yet.
        """
        try:
            reply = None
            if batched.keeps(self._task):
                reply = await batched.kept(self._model, self._task, self._number, messages)
            if reply is None and self._number == 1:
                reply = await batched.ask(self._model, asked, self._task, messages, self._header)
        except RetryLaterError:
            if self._budget is not None:
                self._budget.waits(in_batch(self._task_id))
            raise
        if reply is not None:
            reply = reply.booked(reply.wait_s, reply.attempts, self._cost_of(reply))
            if self._budget is not None:
                self._budget.after(messages, reply, is_counted=True)
        return reply

    def _cost_of(self, reply: ChatReply) -> int | None:
        return self._requests.budgets.account(self._model).budget.cost_of(reply, reply.billed_micro)

    async def _attempt(self, asked: Model, messages: Sequence[Message], watch: CallWatch, request_id: str) -> ChatReply:
        began = self._now()
        try:
            reply = await self._client.chat(asked, messages, task_header=self._header)
        except ChatError as error:
            self._finished(error.kind.value, began, error.status, watch, request_id)
            raise
        except asyncio.CancelledError:
            self._finished(ErrorKind.CANCELLED.value, began, None, watch, request_id)
            raise
        self._finished("success", began, 200, watch, request_id, reply)
        return reply

    def _finished(
        self,
        outcome: str,
        began: float,
        status: int | None,
        watch: CallWatch,
        request_id: str,
        reply: ChatReply | None = None,
    ) -> None:
        prompt, completion = (reply.prompt_tokens, reply.completion_tokens) if reply is not None else (0, 0)
        self._emit(
            RequestFinished(
                self._model.key,
                outcome,
                self._now() - began,
                status,
                prompt,
                completion,
                request_id,
                watch.attempts,
                watch.lease_id,
                self._task_id,
                self._trace_id,
            )
        )


_KINDS: Final = {"queue_timeout": ErrorKind.RATE_LIMITED, "too_large": ErrorKind.BAD_REQUEST}


def _not_admitted(denied: AdmissionDeniedError, watch: CallWatch) -> ChatError:
    """Return the error of a request that was not admitted: its provider's limits held it, or admission has closed."""
    kind = _KINDS.get(denied.reason, ErrorKind.CANCELLED)
    return ChatError(kind, denied.message, attempts=watch.attempts, wait_s=watch.wait_s)
