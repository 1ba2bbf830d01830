"""Work as users write it, good and bad; sent by value, as a worker cannot import tests."""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle

from headgate.placement.amounts import amounts
from headgate.placement.service.protocol import WorkKind, WorkOrder

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Quick:
    def __init__(self, value: Any = 1) -> None:
        self.value = value

    def run(self) -> Any:
        return self.value

    def env(self) -> tuple[int, str | None]:
        import os

        return os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")


class Unpicklable:
    def run(self) -> Any:
        import threading

        return threading.Lock()


class Exiting:
    def __init__(self) -> None:
        import os

        os._exit(3)

    def run(self) -> None: ...


class Ranked:
    def run(self) -> int:
        from headgate.placement.cluster.occupant import placement_context

        return placement_context().rank


class Counting:
    """Counts in a busy loop until it is told to stop; goes on from where it was."""

    def __init__(self) -> None:
        self.count, self.goes_on = 0, True

    def run(self) -> int:
        while self.goes_on:
            self.count += 1
        return self.count

    def cancel(self, task_id: str) -> dict[str, Any]:
        self.goes_on = False
        return {"count": self.count, "told": task_id}

    def restore(self, state: dict[str, Any]) -> None:
        self.goes_on, self.count = False, state["count"]


class Awaiting:
    async def run(self) -> None:
        import asyncio

        await asyncio.sleep(600)

    async def checkpoint(self) -> str:
        return "saved"


class Serving:
    def twice(self, number: int) -> int:
        return 2 * number

    def process(self) -> int:
        import os

        return os.getpid()


class Stuck:
    def run(self) -> None:
        import time

        time.sleep(600)

    def cancel(self, task_id: str) -> None:
        self.run()


class Refusing(Stuck):
    def cancel(self, task_id: str) -> None:
        raise RuntimeError("not now")


class Hanging(Quick):
    def __init__(self) -> None:
        Stuck().run()


class Failing:
    def __init__(self) -> None:
        raise ValueError("no weights here")


class Littering:
    """Leaves a child process and a thread behind."""

    def run(self) -> tuple[int, int]:
        import os
        import subprocess
        import threading
        import time

        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        return os.getpid(), subprocess.Popen(["sleep", "600"]).pid


class LateThread:
    def run(self) -> int:
        import os
        import threading
        import time

        threading.Thread(target=time.sleep, args=(0.05,), daemon=True).start()
        return os.getpid()


def order(
    work: type,
    *args: Any,
    epoch: int = 1,
    kind: WorkKind = "hosted",
    method: str = "run",
    state: bytes | None = None,
    options: dict[str, Any] | None = None,
    members: int = 1,
) -> WorkOrder:
    """The order for one start of a class."""
    payload = cloudpickle.dumps((work, args, {}, method, options))
    return WorkOrder("request", f"lease-{epoch}", epoch, kind, payload, state, (amounts(cpu=1),) * members)
