"""`python -m headgate.environments.apart`: the process in which environments of one package live.

Started by `headgate.environments.apart.process` alone. Arguments: the descriptor of the socket to the parent, the
parent's process id, then kind, name and value of the `Source`.
"""

from __future__ import annotations

import faulthandler
import io
import os
import sys

from headgate.environments.apart.lifeline import offer_to_memory_killer, tie_to_parent
from headgate.environments.apart.limits import Source
from headgate.environments.apart.serving import serve


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
