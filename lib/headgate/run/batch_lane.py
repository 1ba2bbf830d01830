"""The batch lane: gathers requests that can wait, submits them to their provider as batches, and collects replies."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, fields
from typing import Any, Final, TypeVar

import orjson

from headgate.config import Settings, value_for
from headgate.core import (
    DAY_S,
    ChatError,
    ChatReply,
    Clock,
    ErrorKind,
    Message,
    Model,
    Spending,
    Task,
    until_set,
    utc_text,
)
from headgate.core.events import BatchEnded, BatchSubmitted, Emit
from headgate.core.status import RequestBatchStatus
from headgate.environments import Environment
from headgate.environments.rubric import RubricEnvironment
from headgate.models import BatchSender, BatchStatus, batch_line, request_body
from headgate.run.dispatch import JUDGE, ROLLOUT
from headgate.run.lane_batches import LaneBatch, LaneGroup, LaneRequest, credential_of, leave_group
from headgate.scheduling import RetryLaterError
from headgate.storage import BatchedRequest, BatchRecord, JournalThread

T = TypeVar("T")

LANE_BYTES: Final = 48 * 1024 * 1024
"""Size limit of one file of requests: below the 64 MiB of our own servers and the 200 MB of OpenAI's."""

SUBMIT_PATIENCE_S: Final = 1_800.0
"""How long to try to submit a batch; then its requests are sent one by one, and its model gets none for `REFUSED_S`."""

REFUSED_S: Final = 3_600.0

PAID_PATIENCE_S: Final = 3_600.0
"""How long to wait for a batch that its provider no longer knows, or whose results it does not give: requests that are
sent again meanwhile are paid twice."""

OVERDUE_S: Final = DAY_S + 3_600.0
"""A batch has a day; an hour later it is given up."""

SPARE_S: Final = 3_600.0
"""In the lane `auto`, a request without a reply this long before the end of its due day is sent at once."""

LEAST_S: Final = 4 * 3_600.0
"""In the lane `auto`, a request with less than this left of its due day never goes into a batch."""

LONGEST_POLLS: Final = 20
"""The poll interval grows by half each time, up to this many times the first."""

CLOSE_S: Final = 10.0
_SHOWN: Final = 50
_CHUNK: Final = 200
_NEVER: Final = frozenset({ErrorKind.BAD_REQUEST, ErrorKind.AUTH, ErrorKind.QUOTA})


class _EndedError(Exception):
    """A batch is given up: its status as shown to users, and why."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class BatchLane:
    """Gathers requests, submits them, and resumes their tasks when a request ends. Owned by the request side.

    A task whose request is in a batch holds no resource: it is put off until `go_on`, then plays again from the start,
    and its request finds its reply here. The journal has each request before its batch is submitted, and keeps its
    reply until the sample is durable, so a process that takes the task over finds it too.

    A request that fails, expires or does not come back is sent the ordinary way. Nothing here counts against a model.

    Attributes:
        go_on: called with the id of a task whose request has ended.
        sample_of: returns the sample id of a task or a stage.
        single: environments whose episodes end with their first reply.
        is_stopping: returns whether nothing new may be submitted.
        freed: called with the id of a task whose request expects nothing more from a batch; maybe more than once.
        paid: called with a model's replies, as (task id, reply); returns the spending to journal with them.
        is_cheaper: returns whether batches of a model are known to cost less.
    """

    def __init__(self, settings: Settings, sender: BatchSender, *, clock: Clock, emit: Emit) -> None:
        self.go_on: Callable[[str], None] = lambda _: None
        self.sample_of: Callable[[str], str] = str
        self.single: Set[str] = frozenset()
        self.is_stopping: Callable[[], bool] = lambda: False
        self.freed: Callable[[str], None] = lambda _: None
        self.paid: Callable[[str, Sequence[tuple[str, ChatReply]]], Mapping[str, Spending]] = lambda *_: {}
        self.is_cheaper: Callable[[Model], bool] = lambda _: False
        self._settings = settings
        self._sender = sender
        self._clock = clock
        self._emit = emit
        self._journal: JournalThread | None = None
        self._models: dict[str, Model] = {}
        self._requests: dict[str, LaneRequest] = {}
        self._of_sample: defaultdict[str, set[str]] = defaultdict(set)
        self._groups: dict[str, LaneGroup] = {}
        self._batches: dict[str, LaneBatch] = {}
        self._fresh: list[LaneBatch] = []
        self._refused: dict[str, float] = {}
        self._wake = asyncio.Event()

    # Which lane a request takes.

    def lane_of(self, model: Model, task: Task) -> str:
        """Return the lane set for a request: by the roster, else by the settings; a judge has its own setting."""
        if task.stage.startswith(f"{JUDGE}."):
            return self._settings.judge_lane
        return model.lane or value_for(self._settings.lanes, task.environment) or "now"

    def _until(self, model: Model, task: Task, now: float) -> float | None:
        """Return until when a request may stay in a batch; None if it must be sent at once."""
        lane = self.lane_of(model, task)
        if lane == "now" or not model.base_url or model.serve is not None or self.is_stopping():
            return None
        if not task.stage.startswith(f"{JUDGE}.") and task.environment not in self.single:
            return None
        if self._refused.get(model.key, 0.0) > now:
            return None
        if lane == "batch":
            return float("inf")
        until = task.due_at + DAY_S - SPARE_S
        return until if until - now >= LEAST_S and self.is_cheaper(model) else None

    def goes(self, model: Model, task: Task) -> str:
        """Return how the first request of a task goes: `now`, in a `batch`, or `done` when a batch has answered it."""
        found = self._requests.get(f"{task.task_id}.1")
        if found is not None and found.stage != "open":
            return found.stage
        return "now" if found is None and self._until(model, task, self._clock.wall()) is None else "batch"

    def is_answered(self, task_id: str) -> bool:
        """Return whether a batch has answered the first request of a task: the reply is paid for and kept."""
        found = self._requests.get(f"{task_id}.1")
        return found is not None and found.stage == "done"

    def why_now(self, model: Model, task: Task) -> str:
        """Return why a request of the lane `auto` goes into no batch, if its price is the reason; else empty."""
        if self.lane_of(model, task) != "auto" or self.is_cheaper(model):
            return ""
        return f"its lane is auto, and nothing says that batches of {model.key} cost less, so it is asked at once"

    # What an episode asks.

    async def ask(
        self, model: Model, asked: Model, task: Task, messages: Sequence[Message], header: str
    ) -> ChatReply | None:
        """Return a batch's reply to the first request of a task; None if the request must be sent at once.

        Args:
            model: the model to ask.
            asked: the same model, with its reply limited to what the sample's budget leaves.
            task: the task that asks.
            messages: the conversation.
            header: names the task, for models that take such a header.

        Raises:
            RetryLaterError: if it is in a batch, or waits for one; `go_on` is called when the task may resume.
        """
        found, now = self._requests.get(key := f"{task.task_id}.1"), self._clock.wall()
        until = self._until(model, task, now)
        if found is None and until is None:
            return None
        digest = _digest(model, messages)
        if found is None:
            assert until is not None, "it goes into a batch"
            found = self._enter(model, task, digest, batch_line(asked, key, messages, header), until, now)
        elif found.digest != digest:
            self._settled(found)  # the question has changed, so the reply to the former one is useless
        elif self.lane_of(model, task) == "auto":
            found.until = task.due_at + DAY_S - SPARE_S  # another process submitted it
        if found.stage == "done":
            text = await self._journaled(lambda journal: journal.batches.reply(found))
            return _reply_of(text, self._clock.wall() - found.asked_at if found.asked_at else 0.0)
        if found.stage == "now":
            return None
        raise RetryLaterError("its request is in a batch", is_failure=False, is_held=lambda: found.stage == "open")

    def keeps(self, task: Task) -> bool:
        """Return whether a task's replies are kept until its sample is durable: its judge may take a day."""
        return task.stage == ROLLOUT and self._settings.judge_lane != "now"

    async def kept(self, model: Model, task: Task, number: int, messages: Sequence[Message]) -> ChatReply | None:
        """Return the reply that an earlier process got to the same request; None if there is none."""
        digest = _digest(model, messages)
        return _reply_of(await self._journaled(lambda journal: journal.batches.kept(task.task_id, number, digest)), 0.0)

    async def keep(self, model: Model, task: Task, number: int, messages: Sequence[Message], reply: ChatReply) -> None:
        """Keep a reply for the next process, in case this one ends before the sample is durable."""
        sample = self.sample_of(task.task_id)
        request = BatchedRequest(task.task_id, number, _digest(model, messages), sample, "")
        text = orjson.dumps(asdict(reply)).decode()
        await self._journaled(lambda journal: journal.batches.keep(request, text))

    def _enter(self, model: Model, task: Task, digest: str, line: bytes, until: float, now: float) -> LaneRequest:
        made = LaneRequest(
            task.task_id, 1, digest, self.sample_of(task.task_id), "", line=line, asked_at=now, until=until
        )
        self._know(made)
        group = self._groups.setdefault(model.key, LaneGroup(model))
        if not group.requests:
            group.since, group.size = now, 0
        group.model = model
        group.requests[made.custom_id], made.group = made, group
        group.size += len(line) + 1
        if len(group.requests) == 1 or self._is_due(group, now):
            self._wake.set()
        return made

    def _know(self, request: LaneRequest) -> None:
        self._requests[request.custom_id] = request
        self._of_sample[request.sample].add(request.custom_id)

    def forget(self, samples: Iterable[str]) -> None:
        """Forget the requests of samples that are durable or no longer wanted.

        A batch with no wanted request left is cancelled.
        """
        for key in [key for sample in samples for key in self._of_sample.pop(sample, ())]:
            request = self._requests.pop(key)
            leave_group(request)
            self.freed(request.task_id)
            batch = self._batches.get(request.batch)
            if batch is not None and batch.give_up(request) and not batch.open:
                batch.wake.set()

    def note_model(self, model: Model) -> None:
        """Add a model; another process may have left batches of it."""
        self._models[model.key] = model
        for batch in self._batches.values():
            if batch.record.model == model.key:
                batch.note_model(model)

    def forget_model(self, alias: str) -> None:
        """Remove a model; a batch under way keeps its own copy."""
        self._models.pop(alias, None)
        self._refused.pop(alias, None)
        self._groups.pop(alias, None)

    # Status.

    def why(self, task_id: str) -> str:
        """Return where a task's request is, in words; empty if it is in no batch and waits for none."""
        request = self._requests.get(f"{task_id}.1")
        if request is None or request.stage != "open":
            return ""
        if (group := request.group) is not None:
            at = utc_text(group.since + self._settings.lane_batch_wait_s)
            return f"its request waits for {len(group.requests)} to make a batch, submitted at {at} at the latest"
        batch = self._batches[request.batch]
        since = f"since {utc_text(batch.record.made_at)}, {batch.done} of {batch.record.requests} done"
        return f"in batch {batch.record.batch_id or batch.record.key} {since}"

    def status(self) -> tuple[RequestBatchStatus, ...]:
        """Return the oldest batches under way."""
        oldest = sorted(self._batches.values(), key=lambda one: one.record.made_at)[:_SHOWN]
        return tuple(
            RequestBatchStatus(
                one.record.model,
                one.record.batch_id or one.record.key,
                one.record.made_at,
                one.record.requests,
                one.done,
                one.record.base_url or ("" if one.model is None else one.model.base_url),
                one.record.made_at + OVERDUE_S,
                one.state or one.record.stage,
            )
            for one in oldest
        )

    # The work.

    @property
    def is_loaded(self) -> bool:
        """Whether it has read the journal."""
        return self._journal is not None

    async def load(self, journal: JournalThread) -> None:
        """Load the batches in the journal, including those of dead processes."""
        self._journal = journal
        records, requests = await journal.write(journal.journal.batches.load, self._clock.wall())
        known: dict[str, LaneBatch] = {}
        for record in records:
            if record.key in self._batches:
                continue
            if record.stage == "made":  # never submitted: its requests are made again
                await journal.write(journal.journal.batches.undo, record)
                continue
            batch = known[record.key] = LaneBatch(record)
            if (model := self._models.get(record.model)) is not None:
                batch.note_model(model)
            if record.stage != "ended":
                self._batches[record.key] = batch
                self._fresh.append(batch)
        for one in requests:
            if one.batch in known and one.custom_id not in self._requests:
                request = LaneRequest(**{each.name: getattr(one, each.name) for each in fields(one)})
                request.asked_at = known[one.batch].record.made_at
                self._know(request)
                if one.stage == "open":
                    known[one.batch].open[one.custom_id] = request
                    if known[one.batch].record.stage == "ended":
                        self._settled(request)
        self._wake.set()

    async def run(self) -> None:
        """Submit gathered requests, and follow batches to their end, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                now = self._clock.wall()
                for gathered in [one for one in self._groups.values() if one.requests and self._is_due(one, now)]:
                    await self._make(gathered, now)
                fresh, self._fresh = self._fresh, []
                for batch in fresh:
                    group.create_task(self._follow(batch), name=f"batch {batch.record.key}")
                wait_s = self._settings.lane_batch_wait_s
                waits = [one.since + wait_s - now for one in self._groups.values() if one.requests]
                await until_set(self._wake, max(0.0, min(waits)) if waits else None)

    async def close(self) -> None:
        """Finish batches that have ended, and cancel those with no request left; all others stay as they are."""
        for batch in [one for one in self._batches.values() if one.outcome is not None or not one.open]:
            if batch.outcome is not None:
                await self._end(batch)
            elif batch.model is not None and batch.record.stage == "open":
                with contextlib.suppress(ChatError, TimeoutError):
                    async with asyncio.timeout(CLOSE_S):
                        await self._sender.cancel(batch.model, batch.record.batch_id)

    def _is_due(self, group: LaneGroup, now: float) -> bool:
        settings = self._settings
        is_full = len(group.requests) >= settings.lane_batch_requests or group.size >= LANE_BYTES
        return is_full or now >= group.since + settings.lane_batch_wait_s

    async def _make(self, group: LaneGroup, now: float) -> None:
        """Form a batch and journal it before the provider hears of it."""
        chosen: dict[str, LaneRequest] = {}
        size = 0
        for key, request in group.requests.items():
            size += len(request.line) + 1
            if chosen and (size > LANE_BYTES or len(chosen) == self._settings.lane_batch_requests):
                break
            chosen[key] = request
        model, key = group.model, f"headgate-{uuid.uuid4().hex}"
        record = BatchRecord(
            key, model.key, now, len(chosen), base_url=model.base_url, credential=credential_of(key, model)
        )
        data = b"\n".join(request.line for request in chosen.values()) + b"\n"
        group.since = now
        for request in chosen.values():
            leave_group(request)
            request.batch = record.key
        batch = self._batches[record.key] = LaneBatch(record, model, dict(chosen), data=data)
        self._fresh.append(batch)
        await self._journaled(lambda journal: journal.batches.add(record, list(chosen.values())))

    async def _follow(self, batch: LaneBatch) -> None:
        """Follow a batch to its end; requests without a reply are then sent at once."""
        try:
            await self._model_known(batch)
            if not batch.record.batch_id:
                await self._submit(batch)
            found = await self._awaited(batch)
            batch.outcome = found.status, found.problem
            if batch.open or batch.unwanted:
                await self._collect(batch, found)
        except _EndedError as ended:
            batch.outcome = ended.status, str(ended)
        await self._end(batch)

    async def _model_known(self, batch: LaneBatch) -> None:
        """Wait until there is a model to ask about a batch: one may come back to the roster.

        Raises:
            _EndedError: if its model is at another URL, with another key.
        """
        while batch.model is None:
            if batch.moved_to:
                place = batch.record.base_url
                raise _EndedError("moved", f"it lies at {place}, which is not told the key of {batch.moved_to}")
            batch.wake.clear()
            await batch.wake.wait()

    async def _submit(self, batch: LaneBatch) -> None:
        """Submit a batch to the provider.

        Raises:
            _EndedError: if the provider does not accept it.
        """
        record, give_up_at = batch.record, self._clock.monotonic() + SUBMIT_PATIENCE_S
        may_be_there = record.stage == "uploaded"

        async def uploaded() -> str:
            return await self._sender.upload(batch.asked, record.key, batch.data)

        async def created() -> BatchStatus:
            nonlocal may_be_there
            found = await self._sender.find(batch.asked, record.key) if may_be_there else None
            if found is not None:
                return found
            may_be_there = True
            return await self._sender.create(batch.asked, record.key, record.file_id)

        try:
            if record.stage == "made":
                record.file_id = await self._tried(uploaded, give_up_at, _NEVER)
                record.stage, batch.data = "uploaded", b""
                await self._journaled(lambda journal: journal.batches.reached(record))
            found = await self._tried(created, give_up_at, _NEVER)
        except ChatError as error:
            self._refused[record.model] = self._clock.wall() + REFUSED_S
            raise _EndedError("refused", str(error)) from None
        record.stage, record.batch_id = "open", found.batch_id
        await self._journaled(lambda journal: journal.batches.reached(record))
        self._emit(BatchSubmitted(record.model, record.batch_id, record.requests))

    async def _tried(
        self, call: Callable[[], Awaitable[T]], give_up_at: float, final: Set[ErrorKind] = frozenset()
    ) -> T:
        """Return a call's result, retried until `give_up_at` save after `final` errors; raise its last `ChatError`."""
        pause_s = self._settings.lane_poll_s
        while True:
            try:
                return await call()
            except ChatError as error:
                pause_s = max(pause_s, error.retry_after_s or 0.0)
                if error.kind in final or self._clock.monotonic() + pause_s > give_up_at:
                    raise
            await self._clock.sleep(pause_s)
            pause_s = self._grown(pause_s)

    def _grown(self, pause_s: float) -> float:
        return min(pause_s * 1.5, self._settings.lane_poll_s * LONGEST_POLLS)

    async def _awaited(self, batch: LaneBatch) -> BatchStatus:
        """Wait for a batch to end and return it; it is cancelled once none of its requests is wanted.

        Raises:
            _EndedError: if the provider has lost it, or does not finish it.
        """
        record, pause_s, is_cancelled = batch.record, self._settings.lane_poll_s, False
        known_at = self._clock.monotonic()
        while True:
            if not batch.open and not is_cancelled:
                is_cancelled = True
                with contextlib.suppress(ChatError):
                    await self._sender.cancel(batch.asked, record.batch_id)
            try:
                found = await self._sender.status(batch.asked, record.batch_id)
            except ChatError as error:
                if error.status != 404:
                    known_at = self._clock.monotonic()
                elif self._clock.monotonic() - known_at >= PAID_PATIENCE_S:
                    raise _EndedError("lost", str(error)) from None
                pause_s = max(pause_s, error.retry_after_s or 0.0)
            else:
                known_at, batch.done, batch.state = self._clock.monotonic(), max(batch.done, found.done), found.status
                if found.is_ended:
                    return found
            now = self._clock.wall()
            for request in [one for one in batch.open.values() if one.until <= now]:
                self._settled(request)  # sent at once: its due day ends, perhaps before its batch
            if now > record.made_at + OVERDUE_S:
                with contextlib.suppress(ChatError):
                    await self._sender.cancel(batch.asked, record.batch_id)
                raise _EndedError("overdue", f"it has not ended within {OVERDUE_S / 3600:g} h")
            batch.wake.clear()
            await until_set(batch.wake, pause_s)
            pause_s = self._grown(pause_s)

    async def _collect(self, batch: LaneBatch, found: BatchStatus) -> None:
        """Store results and resume their tasks once they are durable; a download that breaks off is restarted."""
        seen: set[str] = set()

        async def read() -> None:
            before, batch.ignored = frozenset(seen), 0
            kept: list[tuple[LaneRequest, ChatReply | None]] = []
            try:
                async for custom_id, reply in self._sender.results(batch.asked, found):
                    request = batch.open.get(custom_id) or batch.unwanted.get(custom_id)
                    if request is None or custom_id in seen:
                        batch.ignored += custom_id not in before
                        continue
                    seen.add(custom_id)
                    kept.append((request, reply))
                    if len(kept) >= _CHUNK:
                        await self._keep(batch, kept)
                        kept = []
            except ChatError:
                await self._keep(batch, kept)
                raise
            await self._keep(batch, kept)

        try:
            await self._tried(read, self._clock.monotonic() + PAID_PATIENCE_S)
        except ChatError as error:
            raise _EndedError("given_up", f"its results cannot be read: {error}") from None

    async def _keep(self, batch: LaneBatch, kept: list[tuple[LaneRequest, ChatReply | None]]) -> None:
        texts = [(one, None if reply is None else orjson.dumps(asdict(reply)).decode()) for one, reply in kept]
        spent = self.paid(batch.record.model, [(one.task_id, reply) for one, reply in kept if reply is not None])
        await self._journaled(lambda journal: journal.batches.ended(texts, spent, self._clock.wall()))
        for request, reply in kept:
            if batch.unwanted.pop(request.custom_id, None) is not None:
                continue  # it is paid for, and nothing more
            if reply is None:
                self._settled(request)
            else:
                request.stage = "done"
                batch.answered += 1
                batch.tokens = batch.tokens[0] + reply.prompt_tokens, batch.tokens[1] + reply.completion_tokens
                batch.open.pop(request.custom_id, None)
                self.go_on(request.task_id)

    async def _end(self, batch: LaneBatch) -> None:
        """Journal that no more results come of a batch, and report its end."""
        assert batch.outcome is not None, "it has ended"
        record, record.stage = batch.record, "ended"
        left = list(batch.open.values())
        await self._journaled(lambda journal: journal.batches.ended([(one, None) for one in left]))
        await self._journaled(lambda journal: journal.batches.reached(record))
        for request in left:
            self._settled(request)
        if self._batches.pop(record.key, None) is None:
            return  # already reported elsewhere, at the end of the run
        status, reason = batch.outcome
        counts = (record.requests, batch.answered, batch.left, batch.ignored, self._clock.wall() - record.made_at)
        self._emit(BatchEnded(record.model, record.batch_id or record.key, status, *counts, reason, *batch.tokens))

    def _settled(self, request: LaneRequest) -> None:
        """Mark a request to be sent the ordinary way."""
        request.stage = "now"
        leave_group(request)
        batch = self._batches.get(request.batch)
        if batch is not None and batch.give_up(request):
            batch.left += 1
        self.freed(request.task_id)
        self.go_on(request.task_id)

    async def _journaled(self, change: Callable[[Any], T]) -> T:
        assert self._journal is not None, "it has been loaded"
        thread = self._journal
        return await thread.write(lambda: change(thread.journal))


def _digest(model: Model, messages: Sequence[Message]) -> str:
    return hashlib.blake2b(request_body(model, messages, dict(model.options), streams=False)).hexdigest()[:32]


def single_reply(environments: Mapping[str, Environment]) -> frozenset[str]:
    """Return the environments whose episodes end with their first reply; a rubric's base counts by its own name."""
    found = [one for one in environments.values() if one.spec.max_rounds == 1]
    under = [one.base for one in found if isinstance(one, RubricEnvironment)]
    return frozenset(one.spec.name for one in [*found, *under])


def _reply_of(text: str, wait_s: float) -> ChatReply | None:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    known = {each.name for each in fields(ChatReply)}
    return ChatReply(**{name: value for name, value in found.items() if name in known} | {"wait_s": wait_s})
