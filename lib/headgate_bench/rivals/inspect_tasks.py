"""inspect_ai on the same provider, if it is installed; it is not a dependency of Headgate."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from typing import Any, Final

from headgate_bench.provider import Provider, Window

NOT_INSTALLED: Final = "not installed"

_START_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.25


class RivalFailedError(Exception):
    """The rival did not run; the scenario goes on without it."""


def inspect_is_installed() -> bool:
    """Return whether inspect_ai can be imported."""
    return importlib.util.find_spec("inspect_ai") is not None


async def inspect_sampled(
    endpoint: Provider, *, models: int, at_once: int, samples: int, folder: Path, warm_up_s: float, window_s: float
) -> Window:
    """Return the provider's window, after a warm-up, while one `inspect_ai.eval` of all models runs.

    It runs in its own process in its fastest form: one task per model, in parallel, with `at_once` connections in
    total, no log of samples and no real-time log.

    Raises:
        RivalFailedError: if it never sends a request.
    """
    arguments = [endpoint.base_url, str(folder), str(models), str(max(1, at_once // models)), str(samples)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, *arguments, stdout=asyncio.subprocess.DEVNULL, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        await _begun(endpoint, process)
        await asyncio.sleep(warm_up_s)
        await endpoint.reset()
        await asyncio.sleep(window_s)
        return await endpoint.window()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _begun(endpoint: Provider, process: asyncio.subprocess.Process) -> None:
    """Wait until the first request is in service."""
    waited_s = 0.0
    while not await endpoint.in_flight():  # the provider is in another process, which can only be polled
        await asyncio.sleep(_LOOK_EVERY_S)
        waited_s += _LOOK_EVERY_S
        if waited_s > _START_S or process.returncode is not None:
            raise RivalFailedError("inspect_ai sent no request to the provider")


def _evaluate(base_url: str, folder: str, models: int, connections: int, samples: int) -> None:
    inspect: Any = importlib.import_module("inspect_ai")
    dataset: Any = importlib.import_module("inspect_ai.dataset")
    model: Any = importlib.import_module("inspect_ai.model")
    scorer: Any = importlib.import_module("inspect_ai.scorer")
    solver: Any = importlib.import_module("inspect_ai.solver")
    questions = [
        dataset.Sample(id=number, input="Task: answer right or wrong.", target="right")
        for number in range(samples // models)
    ]
    inspect.eval(
        inspect.Task(dataset=questions, solver=solver.generate(), scorer=scorer.match()),
        model=[
            model.get_model(f"openai-api/bench/simulated-{number:03d}", base_url=base_url, api_key="none")
            for number in range(models)
        ],
        max_connections=connections,
        max_tasks=models,
        display="none",
        log_dir=folder,
        log_realtime=False,
        log_samples=False,
    )


if __name__ == "__main__":
    address, log_folder, *numbers = sys.argv[1:]
    _evaluate(address, log_folder, *map(int, numbers))
