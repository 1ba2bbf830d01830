"""Child processes that never outlive this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

KEEPER: Final = str(Path(__file__).with_name("keeper.py"))
"""Path of the program that ends a command with its parent; it runs without importing this package."""

_KEEPER_MARGIN_S: Final = 10.0


class ChildProcess:
    """A running command. Owned by `child_process`; it and all that it starts end with that context or this process."""

    def __init__(self, keeper: asyncio.subprocess.Process, log: Path) -> None:
        self._keeper = keeper
        self.log = log

    @property
    def has_ended(self) -> bool:
        """Whether the command and everything that it started are gone."""
        return self._keeper.returncode is not None

    async def ended(self) -> int:
        """Return the command's exit status once it and everything that it started are gone."""
        return await self._keeper.wait()

    def last_lines(self, count: int = 15) -> str:
        """Return the last lines of the command's output."""
        return last_lines(self.log, count)


def last_lines(log: Path, count: int = 15) -> str:
    """Return the last lines of a log; empty when it was never written."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
    except FileNotFoundError:
        return ""


@asynccontextmanager
async def child_process(
    command: Sequence[str], *, environ: Mapping[str, str], folder: Path, log: Path, grace_s: float
) -> AsyncIterator[ChildProcess]:
    """Run a command for as long as the context is open; then end it with everything it started.

    It also ends when this process is killed in any way. A Ctrl-C at the terminal does not reach it: this process ends
    its children in its own order.

    Args:
        command: program and arguments.
        environ: its complete environment.
        folder: its working directory.
        log: file that its output is appended to.
        grace_s: seconds that it may take to end after SIGTERM.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        keeper = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            KEEPER,
            str(grace_s),
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=dict(environ),
            start_new_session=True,
        )
    try:
        yield ChildProcess(keeper, log)
    finally:
        await asyncio.shield(_end(keeper, grace_s + _KEEPER_MARGIN_S))


async def _end(keeper: asyncio.subprocess.Process, within_s: float) -> None:
    if keeper.stdin is not None:
        keeper.stdin.close()
    try:
        async with asyncio.timeout(within_s):
            await keeper.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(keeper.pid, 9)
        await keeper.wait()
