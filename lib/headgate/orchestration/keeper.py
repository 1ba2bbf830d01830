"""The keeper's former name, which service files may still contain; the program is `headgate.processes.keeper`."""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    sys.stderr.write("headgate.orchestration.keeper is now headgate.processes.keeper\n")
    runpy.run_module("headgate.processes.keeper", run_name="__main__")
