"""inspect_ai on the same provider, where it is installed; it is no dependency of Headgate."""

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
    """Return the provider's window while one `inspect_ai.eval` of all models runs, once it is warm.

    It runs in its own process in its fastest form: one task per model, side by side, connections that add up to
    `at_once`, no log of samples and none in real time.

    Raises:
        RivalFailedError: if it never asked anything.
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
    """Return when the first request is in service."""
    waited_s = 0.0
    while not await endpoint.in_flight():  # it is in another process, which can only be asked
        await asyncio.sleep(_LOOK_EVERY_S)
        waited_s += _LOOK_EVERY_S
        if waited_s > _START_S or process.returncode is not None:
            raise RivalFailedError("inspect_ai asked nothing of the provider")


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
