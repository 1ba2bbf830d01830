"""`python -m headgate.environments.apart`: the process in which environments of one package live.

Started by `headgate.environments.apart.process` alone. Arguments: the descriptor of the socket to the parent, the
parent's process id, then kind, name and value of the `Source`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from headgate.environments.apart.frames import Source
from headgate.environments.apart.serving import serve

_PR_SET_PDEATHSIG: Final = 1

_WATCH: Final = 'read -r _; kill -9 "-$0"'
"""Waits for the end of a pipe that only the parent can write to, then ends the process group, itself included.

Without `--`, which dash takes for a number.
"""


def tie_to_parent(parent: int) -> None:
    """Let this process and all that it starts end when process `parent` ends, also by `kill -9`.

    The kernel ends this process (Linux). What it started, such as a Java runtime, would stay: a shell of 2 MB in the
    same process group waits for the end of stdin, whose other end the parent holds, and ends the group.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before this line
        os._exit(1)
    subprocess.Popen(  # noqa: S603 - fixed words and a number
        ["/bin/sh", "-c", _WATCH, str(os.getpgid(0))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _read_nothing()


def offer_to_memory_killer() -> None:
    """Let the kernel end this process before the campaign when the machine runs out of memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _read_nothing() -> None:
    """Let stdin be empty: an environment that asks a question at the terminal gets the end of the file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def main(arguments: list[str]) -> None:
    """Serve calls until the parent says that it is enough, or is gone."""
    descriptor, parent, kind, name, value = arguments
    tie_to_parent(int(parent))
    offer_to_memory_killer()
    os.environ.pop("PYTHONPATH", None)  # ours, made of the parent's path; what is started from here finds its own way
    os.set_inheritable(int(descriptor), False)  # the end of this process must be the end of the socket
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="replace")  # what is said before a crash is read
    faulthandler.enable()
    serve(int(descriptor), Source("collection" if kind == "collection" else "environment", name, value))


if __name__ == "__main__":
    main(sys.argv[1:])
