"""What a worker on a cluster's node needs to have installed."""

from __future__ import annotations

import subprocess
import sys


def test_the_kit_needs_nothing_of_the_server() -> None:
    heavy = (
        "fastapi starlette uvicorn prefect ray polars duckdb orjson numpy psycopg sqlalchemy prometheus_client cyclopts"
    )
    script = f"""
import sys
import headgate.jobqueue.worker
print([name for name in {heavy!r}.split() if name in sys.modules])
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_the_keeper_imports_nothing_of_headgate() -> None:
    command = [sys.executable, "-I", "-S", "-X", "importtime", "lib/headgate/processes/keeper.py", "1", "true"]
    said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert "headgate" not in said.stderr
