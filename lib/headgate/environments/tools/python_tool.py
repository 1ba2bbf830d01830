"""The tool `python`: a program of the model's, run in the sandbox."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from headgate.environments.sandbox import SHARED, Limits, Sandbox
from headgate.environments.tools.toolbox import Tool

STEP: Final = Limits(wall_s=10.0, cpu_s=5, memory_bytes=256 * 1024 * 1024, output_bytes=100_000)
"""Of one call: a step of an episode is no long computation, and other episodes wait for the processor."""


class PythonArguments(BaseModel):
    """Arguments of the tool `python`."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(description="A whole Python program. Print what you want to see.")


def python_tool(
    stdin: str = "", about_stdin: str = "", *, limits: Limits = STEP, sandbox: Sandbox = SHARED
) -> Tool[PythonArguments]:
    """Return a tool that runs the model's Python program without network, files or other processes.

    Each call is a program of its own: nothing is kept from one to the next.

    Args:
        stdin: what programs can read from standard input.
        about_stdin: a sentence about it, for the model.
        limits: of one call.
        sandbox: where programs run.
    """

    async def run(arguments: PythonArguments) -> str:
        done = await sandbox.run(arguments.code, stdin, limits)
        printed = done.stdout if done.stdout.strip() else "(the program printed nothing)"
        return printed if done.is_clean else f"{printed}\n{done.stderr}\n{done.problem}"

    description = "Run a Python program; only the standard library is there, no network and no files."
    return Tool("python", f"{description} {about_stdin}".rstrip(), PythonArguments, run)
