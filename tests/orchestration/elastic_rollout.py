"""Classes of engines as users write them; they know nothing of Headgate."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any


class Rollout:
    """Answers with its process id, once the request's gate is open: a file that a test makes."""

    def __init__(self, gate: str = "", fails: str = "") -> None:
        if fails:
            raise ValueError(fails)
        self.gate = gate
        self.requests: dict[str, asyncio.Event] = {}
        self.is_awake = False

    async def chat(self, path: str, body: bytes, request_id: str) -> Any:
        leave = self.requests[request_id] = asyncio.Event()
        try:
            while self.gate and not Path(self.gate).exists() and not leave.is_set():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.01)
        finally:
            del self.requests[request_id]
        if leave.is_set():
            raise RuntimeError("it was aborted")
        return {"pid": os.getpid(), "path": path, "asked": json.loads(body)}

    async def load(self) -> dict[str, Any]:
        return {"running": len(self.requests), "slots": 4, "models": ["tiny"], "is_asleep": not self.is_awake}

    async def wake(self) -> None:
        self.is_awake = True

    async def sleep(self) -> None:
        self.is_awake = False

    async def abort(self, request_id: str) -> None:
        if (leave := self.requests.get(request_id)) is not None:
            leave.set()


class Stubborn(Rollout):
    """Lets go of nothing."""

    async def abort(self, request_id: str) -> None: ...


class Plain:
    """Has no `async` methods."""

    def chat(self, path: str, body: bytes, request_id: str) -> bytes:
        return json.dumps({"pid": os.getpid(), "path": path, "id": request_id, "size": len(body)}).encode()

    def load(self) -> dict[str, Any]:
        return {"running": 0}

    def wake(self) -> None: ...

    def abort(self, request_id: str) -> None: ...


class Streaming:
    """Answers in parts, and knows who was let go of."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.aborted: set[str] = set()

    async def chat(self, path: str, body: bytes, request_id: str) -> AsyncIterator[bytes]:
        self.running.add(request_id)
        number = 0
        while request_id not in self.aborted and (number < 3 or b"endless" in body):
            yield f"data: {number}\n\n".encode()
            number += 1
            await asyncio.sleep(0.01)
        self.running.discard(request_id)

    async def load(self) -> dict[str, Any]:
        return {"running": len(self.running)}

    async def wake(self) -> None: ...

    async def abort(self, request_id: str) -> None:
        self.aborted.add(request_id)


class Deaf:
    def chat(self) -> None: ...
