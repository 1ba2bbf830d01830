"""A lock between the processes of one machine, for calls that a Prefect server on SQLite takes one at a time only."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import tempfile
from pathlib import Path
from types import TracebackType


class MachineLock:
    """Held by one process of this machine at a time, per API address. Ends with its process, however that dies.

    Nobody waits for anything but an answer of the API while holding it, so it is held for milliseconds. One task of a
    process uses it at a time.
    """

    def __init__(self, api_url: str) -> None:
        name = hashlib.blake2b(api_url.encode(), digest_size=8).hexdigest()
        self._path = Path(tempfile.gettempdir()) / f"headgate-slots-{os.getuid()}" / f"{name}.lock"
        self._turn = asyncio.Lock()
        self._handle: int | None = None

    async def __aenter__(self) -> None:
        await self._turn.acquire()
        waiting = asyncio.get_running_loop().run_in_executor(None, _locked, self._path)
        try:
            self._handle = await asyncio.shield(waiting)
        except BaseException:
            # The thread goes on waiting; what it gets then is given back at once.
            waiting.add_done_callback(_give_back)
            self._turn.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)
        self._turn.release()


def _locked(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _give_back(waiting: asyncio.Future[int]) -> None:
    if not waiting.cancelled() and waiting.exception() is None:
        os.close(waiting.result())
