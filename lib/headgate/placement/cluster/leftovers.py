"""What work leaves behind in its process: threads, child processes, an open GPU. Such a process is not used again."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_OURS: Final = ("headgate-", "asyncio_", "ray_")


class Leftovers:
    """Compares the process with what it was. Owned by a host; taken before each piece of work."""

    def __init__(self) -> None:
        self._threads = {thread.ident for thread in threading.enumerate()}
        self._environ = dict(os.environ)
        self._folder = os.getcwd()  # noqa: PTH109 - a string goes back into chdir as it is

    def found(self) -> str:
        """Return what is left, in words; nothing when the process can be used again."""
        threads = [thread.name for thread in threading.enumerate() if self._is_new(thread)]
        if threads:
            return f"threads: {', '.join(threads[:3])}"
        if children := list(_children(os.getpid())):
            return f"child processes: {', '.join(map(str, children[:3]))}"
        return "an open GPU" if _has_gpu_open() else ""

    def cleared(self) -> None:
        """Put environment and folder back, and free what the work's objects held in cycles."""
        os.environ.clear()
        os.environ.update(self._environ)
        with suppress(OSError):
            os.chdir(self._folder)
        gc.collect()

    def _is_new(self, thread: threading.Thread) -> bool:
        is_ours = thread.name.startswith(_OURS) or isinstance(thread, threading._DummyThread)  # noqa: SLF001
        return thread.is_alive() and not is_ours and thread.ident not in self._threads


def end_children() -> int:
    """Kill every process that descends from this one, and return how many there were."""
    found = list(_descendants(os.getpid()))
    for process_id in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process_id, signal.SIGKILL)
    return len(found)


def _descendants(process_id: int) -> Iterator[int]:
    for child in _children(process_id):
        yield from _descendants(child)
        yield child


def _children(process_id: int) -> Iterator[int]:
    """Return the children of a process; none where the system has no /proc."""
    for told in Path(f"/proc/{process_id}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, told.read_text().split())


def _has_gpu_open() -> bool:
    """Tell whether CUDA is initialised: its context holds memory until the process ends, and shows as open devices."""
    for opened in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            if str(opened.readlink()).startswith("/dev/nvidia"):
                return True
    return False
