"""Runs with a judge in virtual time: real environment, real admission, providers that are scripted."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headgate.config import Settings
from headgate.core import ChatError, ChatReply, ErrorKind, Message, Model, Sample
from headgate.core.events import Event
from headgate.environments import BaselineKind, Environment, coverage_judge, environment
from headgate.models import TaskReference
from headgate.run import EndpointChats, RequestSide, Run, RunPlan, RunResult
from headgate.run.judging import Judging
from headgate.run.matrix import MatrixTaskProvider
from headgate.sampling import RosterSource, StaticRoster
from headgate.simulation import LoopClock, MemoryStore, run_virtual

Script = Callable[[float], ErrorKind | None]
"""What goes wrong at a time."""

JUDGE = Model("judge:coverage", base_url="http://judge/v1", max_parallel=4)
EXPLAIN = "headgate:explain"


def model(kind: BaselineKind, **fields: Any) -> Model:
    """A model that answers as a baseline does."""
    return Model(**{"name": kind, "base_url": f"http://{kind}/v1", "max_parallel": 8} | fields)


def storm(begins: float, ends: float) -> Script:
    """429s between two times."""
    return lambda at: ErrorKind.RATE_LIMITED if begins <= at < ends else None


def always(kind: ErrorKind) -> Script:
    """One failure for ever."""
    return lambda _at: kind


class Providers:
    """Answers for baselines and judge after a service time, and fails by script. Implements `ChatSender`."""

    def __init__(self, *, service_s: float = 2.0, **scripts: Script) -> None:
        self.scripts = scripts
        self.service_s = service_s
        self.replies: Callable[[Sequence[Message]], str] = coverage_judge
        self.asked: list[tuple[float, str]] = []
        self.answered: list[tuple[float, str]] = []
        self.in_service: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self.judge_saw: list[Sequence[Message]] = []

    async def chat(self, model: Model, messages: Sequence[Message], *, task_header: str | None = None) -> ChatReply:
        host = model.base_url.removeprefix("http://").partition("/")[0]
        now = asyncio.get_running_loop().time
        self.asked.append((now(), host))
        failure = self.scripts.get(host, lambda _: None)(now())
        if failure is not None:
            await asyncio.sleep(0.05)
            raise ChatError(failure, f"scripted {failure.value}", status=429 if "rate" in failure.value else 500)
        self.in_service[host] += 1
        self.peak[host] = max(self.peak[host], self.in_service[host])
        try:
            await asyncio.sleep(self.service_s)
        finally:
            self.in_service[host] -= 1
        self.answered.append((now(), host))
        if host == "judge":
            self.judge_saw.append(messages)
            return ChatReply(self.replies(messages), prompt_tokens=300, completion_tokens=20)
        assert task_header is not None
        task = TaskReference.parse(task_header)
        kind: Any = host
        text = await environment(task.environment).baseline(
            kind, task.index, task.seed, messages, random.Random(f"{task}")
        )
        return ChatReply(text, prompt_tokens=100, completion_tokens=50)

    def count(self, host: str, begins: float = 0.0, ends: float = float("inf")) -> int:
        """How many requests a host answered between two times."""
        return sum(begins <= at < ends for at, who in self.answered if who == host)


class JudgedWorld:
    """One journal, one store, and the runs over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.events: list[Event] = []
        self.run: Run | None = None
        self.ended_at = 0.0

    def go(
        self,
        models: Sequence[Model],
        providers: Providers,
        *,
        instances: int = 20,
        during: Callable[[Run], Any] | None = None,
        environments: Mapping[str, Environment] | None = None,
        for_s: float | None = None,
        roster: RosterSource | None = None,
        **settings: Any,
    ) -> RunResult:
        """Run to the end, and return what came of it; for `for_s` seconds by rates, else a matrix of `instances`."""
        sampled = {EXPLAIN: environment(EXPLAIN), **(environments or {})}

        async def main() -> RunResult:
            clock = LoopClock()
            chosen = Settings(journal=self.folder, num_evaluation_workers=8, **settings)
            requests = RequestSide(chosen, clock=clock, emit=self.events.append)
            done = {(s.model, s.environment, s.sequence) for s in self.store.samples if s.is_scored}
            plan = RunPlan(
                settings=chosen,
                roster=roster or StaticRoster(tuple(replace(one, uid=uid) for uid, one in enumerate(models))),
                environments=sampled,
                store=self.store,
                chats=EndpointChats(providers, requests, clock=clock),
                requests=requests,
                provider=None if for_s else MatrixTaskProvider(list(sampled), instances, done=done),
                duration_s=for_s,
                judging=Judging(JUDGE),
                stop_when_idle=for_s is None,
                is_traced=True,
            )
            self.run = Run(plan, clock=clock, emit=self.events.append, inline=True)
            async with asyncio.TaskGroup() as group:
                beside = group.create_task(during(self.run)) if during is not None else None
                result = await self.run.run()
                if beside is not None:
                    beside.cancel()
            self.ended_at = clock.monotonic()
            return result

        return run_virtual(main())

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def samples(self, name: str) -> list[Sample]:
        """The stored samples of a model, by sequence."""
        return sorted((s for s in self.store.samples if s.model == f"{name}@main"), key=lambda s: s.sequence)
