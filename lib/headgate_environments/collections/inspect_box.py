"""Inspect's `local` sandbox, locked down: runs a model's commands in a folder of its own. Imports inspect_ai."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final, Literal, overload

from inspect_ai.util import ExecResult, SandboxEnvironment, sandboxenv
from inspect_ai.util import subprocess as run_subprocess
from inspect_ai.util._sandbox.environment import SandboxUserUnsupportedError

from headgate.core.errors import SandboxUnavailableError
from headgate.environments import sandbox

NAME: Final = "headgate-local"

_COMMAND_S: Final = 60
"""Time limit of a command in seconds; an episode that waits for its model has none running."""

_OUTPUT_BYTES: Final = 10 * 1024 * 1024
_WRITE: Final = 'mkdir -p -- "$(dirname -- "$0")" && cat >"$0"'


class LockedSandbox(SandboxEnvironment):
    """Runs each command by `command_launcher`; files are read and written by commands, so no path leads outside.

    Owned by one episode; its folder is deleted with it, and processes that a command starts end with the command.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept = ExitStack()
        self.folder = str(self._kept.enter_context(sandbox.own_folder()))

    def remove(self) -> None:
        """Remove the folder."""
        self._kept.close()

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        """Return a new sandbox.

        Raises:
            SandboxUnavailableError: if commands cannot be locked in on this machine.
        """
        del task_name, config, metadata
        made = cls()
        tried = await made.exec(["true"])
        if not tried.success:
            made.remove()
            raise SandboxUnavailableError(f"commands cannot be locked in: {tried.stderr.strip()}")
        return {"default": made}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """Remove the folders."""
        del task_name, config, interrupted
        for one in environments.values():
            one.as_type(LockedSandbox).remove()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 - given by name
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,  # noqa: ASYNC109 - as above
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command; raises `TimeoutError` at the time limit."""
        del timeout_retry, concurrency
        if user is not None:
            raise SandboxUserUnsupportedError(f"commands run as one user only, not as {user!r}")
        done: ExecResult[str] = await self._run(cmd, input, cwd or ".", env or {}, timeout or _COMMAND_S, text=True)
        return done

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file."""
        done = await self._run(["sh", "-c", _WRITE, file], contents, ".", {}, _COMMAND_S, text=True)
        if not done.success:
            raise _failure(done.stderr, file)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Return the contents of a file."""
        done: ExecResult[bytes] = await self._run(["cat", "--", file], None, ".", {}, _COMMAND_S, text=False)
        if not done.success:
            raise _failure(done.stderr.decode(errors="replace"), file)
        return done.stdout.decode() if text else done.stdout

    async def _run(
        self, cmd: list[str], given: str | bytes | None, cwd: str, env: dict[str, str], limit_s: int, *, text: Any
    ) -> Any:
        variables = [f"{name}={value}" for name, value in env.items()]
        locked = [*sandbox.bare_interpreter(), sandbox.COMMAND_LAUNCHER, self.folder, cwd, *variables, "--", *cmd]
        limit_s = min(limit_s, _COMMAND_S)
        return await run_subprocess(
            locked, text=text, input=given or "", timeout=limit_s, output_limit=_OUTPUT_BYTES, concurrency=False
        )


sandboxenv(name=NAME)(lambda: LockedSandbox)


def _failure(said: str, file: str) -> OSError:
    kinds = {"No such file": FileNotFoundError, "Is a directory": IsADirectoryError}
    return next((kind(file) for words, kind in kinds.items() if words in said), PermissionError(f"{file}: {said}"))
