"""What a flow run writes, and who reads it."""

from __future__ import annotations

import subprocess
import sys

LOGS_THREE_LINES = """
import sys
from prefect.logging import get_logger
from prefect.logging.configuration import setup_logging
from headgate.orchestration.run_state import library_logs_in_run
setup_logging()
with library_logs_in_run():
    print("up", flush=True)
    sys.stdin.read()
    for number in range(3):
        get_logger("tests").warning("line %d", number)
print("went on", flush=True)
"""


def test_a_run_outlives_who_reads_its_log() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LOGS_THREE_LINES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline() == "up\n"
        run.stderr.close()  # as the worker's end of it is when the worker is killed
        run.stdin.close()
        assert run.stdout.read() == "went on\n"
        assert run.wait(30) == 0
