"""Prints what one request costs: `python tests/models/measure_client.py [requests] [concurrency]`.

The simulated endpoint runs in a process of its own; CPU time is of each process, user and system together.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection

from headgate.core import Message, Model
from headgate.models import ChatClient, ClientSettings, SimulationPlan, serve


def endpoint_process(pipe: Connection, cap: int) -> None:
    async def main() -> None:
        async with serve(simulation=SimulationPlan(cap=cap, mean_s=0.0, cv=0.0)) as endpoint:
            pipe.send(endpoint.base_url)
            while True:
                await asyncio.to_thread(pipe.recv)
                pipe.send(time.process_time())

    asyncio.run(main())


async def drive(base_url: str, requests: int, concurrency: int, *, stream: bool) -> tuple[float, float]:
    model = Model("simulated", base_url=base_url)
    messages = (Message("user", "What is the sum of the first ten primes? " * 20),)
    left = iter(range(requests))
    async with ChatClient(ClientSettings(stream=stream)) as client:

        async def worker() -> None:
            for _ in left:
                await client.chat(model, messages)

        began, cpu = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
        return time.perf_counter() - began, time.process_time() - cpu


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    concurrency = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=endpoint_process, args=(theirs, concurrency))
    process.start()
    base_url = ours.recv()

    def server_cpu_s() -> float:
        ours.send(None)
        return float(ours.recv())

    for stream in (False, True, False, True):
        before = server_cpu_s()
        wall_s, cpu_s = asyncio.run(drive(base_url, requests, concurrency, stream=stream))
        server_s = server_cpu_s() - before
        print(
            f"{'streamed' if stream else 'whole   '} {requests} requests, {concurrency} at once: "
            f"{requests / wall_s:7.0f}/s, client {1e3 * cpu_s / requests:.3f} ms CPU per request, "
            f"endpoint {1e3 * server_s / requests:.3f} ms ({requests / server_s:.0f} per second of one core)"
        )
    process.terminate()
    process.join()


if __name__ == "__main__":
    main()
