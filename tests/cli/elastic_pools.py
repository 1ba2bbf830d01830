"""Fake engines on a thread of their own, and gateways as processes: the command line runs its own event loop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headgate.simulation.engines import EnginePlan, FakeEngine, serve_engine

PATIENCE_S = 60.0
T = TypeVar("T")


@dataclass
class Engines:
    """Fake engines that run, and the loop that they run in."""

    served: list[FakeEngine]
    loop: asyncio.AbstractEventLoop

    @property
    def urls(self) -> list[str]:
        return [engine.url for engine in self.served]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns that runs beside the engines."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_S)

    def do(self, call: Callable[[FakeEngine], object], number: int = 0) -> None:
        """Call something of an engine where it may be called."""

        async def there() -> None:
            call(self.served[number])

        self.run(there())


@contextmanager
def engines(*plans: EnginePlan) -> Iterator[Engines]:
    """Give fake engines that run beside the test."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    found = Engines([], loop)
    contexts = [serve_engine(plan) for plan in plans]
    try:
        for context in contexts:
            found.served.append(found.run(context.__aenter__()))
        yield found
    finally:
        for context in contexts[: len(found.served)]:
            found.run(context.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


def pool_file(folder: Path, urls: Sequence[str], **settings: object) -> Path:
    """Write the file of a pool; JSON is YAML."""
    path = folder / "pool.yaml"
    named = [{"url": url, "kind": "auto"} for url in urls]
    path.write_text(
        json.dumps({
            "pool": {"name": "chat", "engines": named},
            "elastic_config": {"monitoring_interval": 0.2, "confirm_interval": 0.05, **settings},
            "gateway": {"port": 0},
        })
    )  # fmt: skip
    return path


@dataclass
class Served:
    """A gateway that runs as a process."""

    process: subprocess.Popen[bytes]
    url: str

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def started(*arguments: str, **pipes: Any) -> subprocess.Popen[bytes]:
    """Start `headgate` as a process."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HEADGATE_")}
    environment["HEADGATE_AUDIT_FILE"] = os.environ["HEADGATE_AUDIT_FILE"]
    return subprocess.Popen([sys.executable, "-m", "headgate.cli", *arguments], env=environment, **pipes)


@contextmanager
def gateway(path: Path) -> Iterator[Served]:
    """Serve a pool as a process, which is told to stop at the end."""
    with started("elastic", "serve", str(path), "--json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, "the gateway has ended"
            yield Served(process, json.loads(line)["url"])
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
