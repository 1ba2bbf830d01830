"""One command in a process group of its own, which ends when its worker does."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from headgate.core import Clock

_GUARD: Final = str(Path(__file__).with_name("guard.py"))
_TELL_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Ended:
    """The command ended by itself: with an exit status, or negative: by a signal."""

    status: int

    @property
    def sentence(self) -> str:
        """What to say of it."""
        if self.status >= 0:
            return f"the command ended with exit status {self.status}"
        try:
            name = signal.Signals(-self.status).name
        except ValueError:
            name = f"signal {-self.status}"
        memory = " (the memory of its machine or its job may have been too small)" if name == "SIGKILL" else ""
        return f"the command was ended by {name}{memory}"


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The command had to be stopped: it took too long."""

    after_s: float

    @property
    def sentence(self) -> str:
        """What to say of it."""
        return f"the command did not end within {self.after_s:g} s and was stopped"


Outcome: TypeAlias = Ended | TimedOut


async def run_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    log: Path,
    lease_left_s: Callable[[], float],
    *,
    timeout_s: float | None,
    grace_s: float,
    clock: Clock,
) -> Outcome:
    """Run a command to its end; whoever cancels this gets control back when its process group is gone.

    Args:
        command: the program and its arguments.
        environ: all its variables.
        log: what it prints goes to this file's end.
        lease_left_s: seconds for which it may run although its worker stands still.
        timeout_s: seconds after which it is stopped.
        grace_s: seconds between SIGTERM and SIGKILL.
        clock: gives the time.
    """
    with log.open("ab") as file:
        guard = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", _GUARD, f"{grace_s:g}", *command,
            stdin=asyncio.subprocess.PIPE, stdout=file, stderr=file, env=dict(environ), start_new_session=True,
        )  # fmt: skip
    ended = asyncio.create_task(guard.wait(), name="end of the command")
    telling = asyncio.create_task(_tell(guard, lease_left_s, clock), name="lease of the command")
    try:
        if timeout_s is None:
            return Ended(await asyncio.shield(ended))
        limit = asyncio.create_task(clock.sleep(timeout_s))
        try:
            await asyncio.wait((ended, limit), return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
        return Ended(ended.result()) if ended.done() else TimedOut(timeout_s)
    finally:
        telling.cancel()
        await _stopped(guard, ended)


async def _tell(guard: asyncio.subprocess.Process, lease_left_s: Callable[[], float], clock: Clock) -> None:
    """Tell the guard how long the lease still runs, again and again."""
    assert guard.stdin is not None
    while True:
        left_s = max(0.0, lease_left_s())
        with contextlib.suppress(ConnectionError):
            guard.stdin.write(f"{left_s:.3f}\n".encode())
            await guard.stdin.drain()
        await clock.sleep(max(1.0, left_s * _TELL_SHARE))


async def _stopped(guard: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
    """Return when the guard has ended the command; it does so by itself once its line is closed."""
    assert guard.stdin is not None
    guard.stdin.close()
    is_cancelled = False
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            is_cancelled = True  # the command's group comes first: nobody else would end it
    if is_cancelled:
        raise asyncio.CancelledError
