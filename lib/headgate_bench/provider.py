"""A simulated provider in its own process, and its counters."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from headgate.core.errors import HeadgateError
from headgate.models import SimulationPlan, serve

_START_S: Final = 60.0
_STOP_S: Final = 10.0


class ProviderFailedError(HeadgateError):
    """The simulated provider of a benchmark did not start, or has exited."""

    code = "bench_provider_failed"
    next_step = "Run the benchmark again; with --verbose the provider's own messages are shown."


@dataclass(frozen=True, slots=True)
class Window:
    """What the provider did between a reset and a reading of its counters."""

    seconds: float  # length of the window
    busy_slot_s: float  # integral of busy slots over it
    utilisation: float  # that integral over cap × seconds
    answered: int  # requests served whole
    refused: int  # requests answered 429


class Provider:
    """A running provider; owned by `provider`."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.base_url = f"{url}/v1"
        self._stats = f"{url}/_headgate/stats"
        self._session = session

    async def reset(self) -> None:
        """Start a window."""
        async with self._session.post(f"{self._stats}/reset") as response:
            response.raise_for_status()

    async def window(self) -> Window:
        """Return the figures since the last reset."""
        found = await self._read()
        by_status = found["by_status"]
        return Window(
            seconds=found["elapsed_s"],
            busy_slot_s=found["busy_slot_s"],
            utilisation=found["utilisation"],
            answered=by_status.get("200", 0),
            refused=by_status.get("429", 0),
        )

    async def in_flight(self) -> int:
        """Return the requests in service now."""
        return int((await self._read())["in_flight"])

    async def _read(self) -> dict[str, Any]:
        async with self._session.get(self._stats) as response:
            response.raise_for_status()
            found: dict[str, Any] = await response.json()
            return found


@asynccontextmanager
async def provider(plan: SimulationPlan) -> AsyncIterator[Provider]:
    """Yield a provider that runs in another process; it stops when the context ends.

    Raises:
        ProviderFailedError: if it does not start.
    """
    async with served_apart(__name__, plan.model_dump_json()) as (url, _), aiohttp.ClientSession() as session:
        yield Provider(url, session)


@asynccontextmanager
async def served_apart(module: str, *arguments: str, says: str = "") -> AsyncIterator[tuple[str, int]]:
    """Run a module in its own process; yield its process id and the text that it prints after `says` once it listens.

    Raises:
        ProviderFailedError: if it does not start.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None, "a pipe was asked for"
    assert process.stdout is not None, "a pipe was asked for"
    try:
        try:
            async with asyncio.timeout(_START_S):
                async for said in process.stdout:
                    if says in (line := said.decode()):
                        break
                else:
                    raise ProviderFailedError(f"{module} ended before it listened")
        except TimeoutError:
            raise ProviderFailedError(f"{module} did not listen within {_START_S:g} s") from None
        yield line[line.index(says) + len(says) :].strip(), process.pid
    finally:
        process.stdin.close()
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _serve(plan: SimulationPlan) -> None:
    """Serve until terminated, or until standard input ends: it does when the parent process ends in any way."""
    async with serve(simulation=plan) as endpoint:
        print(endpoint.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(SimulationPlan.model_validate_json(sys.argv[1])))
