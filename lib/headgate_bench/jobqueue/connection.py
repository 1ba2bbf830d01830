"""A minimal client of `/v1` on one connection: the benchmark measures the server, not the client."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Final, Self

import orjson

from headgate.core.errors import HeadgateError

_LENGTH: Final = b"content-length: "


class UnexpectedAnswerError(HeadgateError):
    """The job queue of a benchmark gave an unexpected answer."""

    code = "bench_jobqueue_answer"
    next_step = "This is a defect of the job queue or of the benchmark, not a measurement."


class Connection:
    """One connection, one request at a time; an asynchronous context."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send a JSON body and return the answer's.

        Raises:
            UnexpectedAnswerError: if its status is not 200.
        """
        raw = orjson.dumps(body)
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}"
        )
        return await self._answered(f"{head}\r\n\r\n".encode() + raw)

    async def get(self, path: str) -> Any:
        """Return the body at a path; raises as `post` does."""
        return await self._answered(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())

    async def _answered(self, request: bytes) -> Any:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        begin = head.lower().index(_LENGTH) + len(_LENGTH)
        body = await self._reader.readexactly(int(head[begin : head.index(b"\r", begin)]))
        if not head.startswith(b"HTTP/1.1 200"):
            raise UnexpectedAnswerError(f"the job queue answered {head[9:12].decode()}: {body.decode()[:200]}")
        return orjson.loads(body)

    # Requests of workers and submitters.

    async def submit(self, job_ids: list[str], *, pool: str = "", task: str = "count") -> None:
        """Submit jobs."""
        jobs = [{"id": job_id, "team": "bench", "task": task, "pool": pool} for job_id in job_ids]
        await self.post("/v1/jobs", {"jobs": jobs})

    async def claim(
        self, worker: str, *, wait_s: float = 0.0, lease_s: float = 90.0, pools: list[str] | None = None
    ) -> dict[str, Any] | None:
        """Return the ids of a claimed job and its lease, in the form of later requests about it, or None."""
        wish = {"worker": worker, "wait_s": wait_s, "lease_s": lease_s, "pools": pools}
        jobs = (await self.post("/v1/claims", wish))["jobs"]
        if not jobs:
            return None
        lease = jobs[0]["lease"]
        return {"job_id": jobs[0]["job"]["id"], "lease_id": lease["lease_id"], "epoch": lease["epoch"]}

    async def complete(self, lease: dict[str, Any]) -> None:
        """Submit a result."""
        body = {"lease_id": lease["lease_id"], "epoch": lease["epoch"], "result": {"q_score": 0.5}}
        await self.post(f"/v1/jobs/{lease['job_id']}/complete", body)

    async def register(self, pool: str, count: int) -> None:
        """Register policy servers for every task; they are only names in the ledger, never called."""
        servers = [{"pool": pool, "host": f"{pool}.example.com", "port": 1 + number} for number in range(count)]
        await self.post("/v1/resources", {"resources": servers})

    async def reserve(self, lease: dict[str, Any], wait_s: float) -> dict[str, Any] | None:
        """Return the policy server that the job got, or None."""
        found: dict[str, Any] | None = (await self.post("/v1/reservations", {**lease, "wait_s": wait_s}))["reservation"]
        return found
