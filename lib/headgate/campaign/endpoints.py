"""The models of a campaign, behind their endpoints."""

from __future__ import annotations

import random
from collections.abc import Sequence

from headgate.core import Chat, ChatReply, Clock, Message, Model, Task
from headgate.core.events import Emit
from headgate.models import ChatClient, RetryPolicy, TaskReference, ask


class EndpointChats:
    """Answers by asking each model's endpoint. Implements `ChatSource`; one per campaign, on one client."""

    def __init__(self, client: ChatClient, policy: RetryPolicy, *, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._policy = policy
        self._clock = clock
        self._rng = rng

    def chat(self, model: Model, task: Task, emit: Emit) -> Chat:
        """Return what asks `model` in the name of `task`."""
        header = str(TaskReference(task.environment, task.index, task.seed, task.sequence))

        async def answer(messages: Sequence[Message]) -> ChatReply:
            return await ask(
                self._client,
                model,
                messages,
                policy=self._policy,
                clock=self._clock,
                rng=self._rng,
                emit=emit,
                task_header=header,
            )

        return answer
