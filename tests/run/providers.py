"""Providers in virtual time: a service time, a number of slots, and storms of 429s."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from headgate.core import ChatError, ChatReply, ErrorKind, Message, Model


class StormyProvider:
    """Answers after `service_s`; in a storm it refuses everything with 429 after `refusal_s`."""

    def __init__(
        self,
        *,
        service_s: float = 2.0,
        refusal_s: float = 0.05,
        storms: Sequence[tuple[float, float]] = (),
        retry_after_s: float | None = None,
        slots: int = 1_000,
    ) -> None:
        self._service_s = service_s
        self._refusal_s = refusal_s
        self._storms = tuple(storms)
        self._retry_after_s = retry_after_s
        self._slots = slots
        self.in_service = 0
        self.peak = 0
        self.answered: list[float] = []
        self.refused: list[float] = []

    def in_storm(self, at: float) -> bool:
        return any(begins <= at < ends for begins, ends in self._storms)

    async def answer(self) -> ChatReply:
        now = asyncio.get_running_loop().time
        if self.in_storm(now()) or self.in_service >= self._slots:
            self.refused.append(now())
            await asyncio.sleep(self._refusal_s)
            raise ChatError(ErrorKind.RATE_LIMITED, "HTTP 429", status=429, retry_after_s=self._retry_after_s)
        self.in_service += 1
        self.peak = max(self.peak, self.in_service)
        try:
            await asyncio.sleep(self._service_s)
        finally:
            self.in_service -= 1
        self.answered.append(now())
        return ChatReply("right", prompt_tokens=8, completion_tokens=1, latency_s=self._service_s)

    def throughput(self, begins: float, ends: float) -> float:
        """Answers per second between two times."""
        return sum(begins <= at < ends for at in self.answered) / (ends - begins)


class Providers:
    """Sends each model's requests to the provider at its address."""

    def __init__(self, **by_host: StormyProvider) -> None:
        self.by_host = by_host
        self.sent: Counter[str] = Counter()

    async def chat(self, model: Model, messages: Sequence[Message], *, task_header: str | None = None) -> ChatReply:
        host = model.base_url.removeprefix("http://").partition("/")[0]
        self.sent[model.key] += 1
        return await self.by_host[host].answer()
