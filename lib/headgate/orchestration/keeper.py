"""The keeper's earlier name, which service files may hold; `headgate.processes.keeper` is the program."""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    sys.stderr.write("headgate.orchestration.keeper is now headgate.processes.keeper\n")
    runpy.run_module("headgate.processes.keeper", run_name="__main__")
