"""What a Ray worker does for a placed Prefect task.

This file imports nothing of Prefect: a worker learns here where the API is, before Prefect reads its settings. So no
worker starts a server of its own, and no `runtime_env` is needed, which costs a second per worker and shows its
variables, keys among them, on Ray's dashboard.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

_TELL_S: Final = 5.0
"""How long the states and logs of a task may take to reach the API before its worker goes on to something else."""


def run_in_place(environ: Mapping[str, str], payload: bytes, *upstream: Any) -> Any:
    """Run one task as Prefect's engine does and return its final state.

    Args:
        environ: variables of Prefect.
        payload: the engine's arguments, pickled.
        upstream: results that Ray must have before the task starts.
    """
    del upstream
    os.environ.update(environ)
    import cloudpickle  # type: ignore[import-untyped]  # noqa: PLC0415 - after the variables, see above

    arguments = cloudpickle.loads(payload)
    try:
        return _engine_run(arguments)
    finally:
        _tell()


def _engine_run(arguments: dict[str, Any]) -> Any:
    import asyncio  # noqa: PLC0415 - as above

    from prefect.task_engine import run_task_async, run_task_sync  # noqa: PLC0415

    if arguments["task"].isasync:
        return asyncio.run(run_task_async(**arguments, return_type="state"))
    return run_task_sync(**arguments, return_type="state")


def _tell() -> None:
    """Wait until Prefect has what happened: the group may be somebody else's in a moment, and this process gone."""
    from prefect.events.worker import EventsWorker  # noqa: PLC0415
    from prefect.logging.handlers import APILogWorker  # noqa: PLC0415

    EventsWorker.drain_all(timeout=_TELL_S)
    APILogWorker.drain_all(timeout=_TELL_S)
