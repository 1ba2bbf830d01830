"""The worker's side of `reserving`: a Unix socket on which a job's command asks for its policy server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.jobqueue.worker.errors import NoServerError
from headgate.jobqueue.worker.held_job import HeldJob
from headgate.jobqueue.worker.reserving import answer_of

_log = logging.getLogger("headgate.jobqueue.worker")


@asynccontextmanager
async def reservation_socket(job: HeldJob, path: Path) -> AsyncIterator[Path]:
    """Answer the questions of a job's command for the time of the context; only this user can ask.

    Raises:
        InvalidInputError: if a socket cannot be made there.
    """
    desk = _Desk(job)
    try:
        server = await asyncio.start_unix_server(desk.serve, path)
    except OSError as error:
        raise InvalidInputError(f"a socket for the command cannot be made at {path}: {error}") from None
    os.chmod(path, 0o600)  # noqa: PTH101 - no other program waits for this one
    try:
        yield path
    finally:
        server.close()
        await desk.close()


class _Desk:
    """Serves one job's command. Owned by `reservation_socket`."""

    def __init__(self, job: HeldJob) -> None:
        self._job = job
        self._one_at_a_time = asyncio.Lock()  # a job has one reservation
        self._visits: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._visits.add(task)
        try:
            await self._talk(reader, writer)
        except (OSError, ValueError) as error:
            _log.info("Job %s: what its command asked cannot be answered: %s", self._job.id, error)
        except asyncio.CancelledError:
            pass  # asyncio's streams report the cancellation of a visit as an error of the program
        finally:
            self._visits.discard(task)
            writer.close()

    async def close(self) -> None:
        """Answer nobody any more."""
        for visit in list(self._visits):
            visit.cancel()
        if self._visits:
            await asyncio.wait(self._visits)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = json.loads(await reader.readline() or b"null")
        if not isinstance(question, dict):
            return
        answering = asyncio.create_task(self._answer(question))
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                writer.write(json.dumps(answering.result()).encode() + b"\n")
                await writer.drain()
        finally:
            answering.cancel()
            gone.cancel()
            await asyncio.gather(answering, gone, return_exceptions=True)

    async def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        job = self._job
        try:
            async with self._one_at_a_time:
                if question.get("do") == "release":
                    await job.release_server()
                    return {}
                if job.server is None:
                    timeout_s = question.get("timeout_s")
                    await job.reserve_server(None if timeout_s is None else float(timeout_s))
                assert job.server is not None
                return answer_of(job.server)
        except HeadgateError as error:
            if isinstance(error, NoServerError) and question.get("timeout_s") is None:
                job.lose_server(error.message)  # the command was ready to wait for ever: it is not to blame
            return {"error": {"code": error.code, "message": error.message, "next_step": error.next_step}}
