"""What a private server's process serves: Prefect's own app, on a database that garbage cannot stop."""

from __future__ import annotations

from fastapi import FastAPI
from prefect.server.api.server import create_app as prefect_app

from headgate.orchestration.sqlite_cursors import release_failed_statements


def create_app() -> FastAPI:
    """Return the app, as `uvicorn --factory` asks for it."""
    release_failed_statements()
    return prefect_app()
