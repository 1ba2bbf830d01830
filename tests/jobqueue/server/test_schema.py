"""The server keeps to its own OpenAPI description, whatever is sent to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from headgate.core import SystemClock
from headgate.jobqueue import LedgerWriter
from headgate.jobqueue.server import ServerSettings, Service, app, build_app, legacy
from headgate.jobqueue.stores import MemoryStore
from headgate.net.authority import Authority
from headgate.net.token_stores import MemoryTokens
from headgate.net.tokens import Scope, new_token
from tests.examples import examples
from tests.jobqueue.server.conftest import JOB, SERVER

pytestmark = pytest.mark.long

_PER_ROUTE = examples(12)
_ROUTES = sorted({(route.method, route.pattern.replace(":path", "")) for route in app.ROUTES} | set(legacy.ROUTES))
_BEYOND_SCHEMAS = {"invalid_job", "idempotency_conflict"}
"""Refusals of what no schema can say: two jobs of one id, an address that must not be called, a key used before."""


class _App:
    """The application, opened at the first use and for the whole module: schemathesis wants its description early."""

    def __init__(self) -> None:
        store = MemoryStore()
        self.writer = LedgerWriter(store, SystemClock(), "schema")
        self.writer.open()
        tokens = MemoryTokens()
        token, self.text = new_token("schema", [Scope.ADMIN], now=SystemClock().wall())
        tokens.add(token, forget_before=0)
        authority = Authority(tokens, rate=None)
        self.service = Service(self.writer, store.reader(), authority, ServerSettings(legacy_acquire_wait_s=0))
        self.asgi = build_app(self.service)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.text.reveal()}"}

    def fill(self) -> None:
        """Give the server what the description's examples speak of."""
        from starlette.testclient import TestClient

        with TestClient(self.asgi) as http:
            http.post("/v1/resources", json={"resources": [SERVER]}, headers=self.headers).raise_for_status()
            http.post("/v1/jobs", json={"jobs": [JOB]}, headers=self.headers).raise_for_status()


@pytest.fixture(scope="module")
def opened() -> Iterator[_App]:
    app = _App()
    app.fill()
    yield app
    app.service.close()
    app.writer.close()


@pytest.fixture(scope="module")
def schema(opened: _App) -> schemathesis.schemas.BaseSchema:
    return schemathesis.openapi.from_asgi("/openapi.json", opened.asgi, headers=opened.headers)


def _as_clients_write(value: Any) -> Any:
    """Return a body without 4.0 for 4 and without NUL: both are right for a schema, and no server takes them."""
    if isinstance(value, dict):
        return {key: _as_clients_write(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_clients_write(inner) for inner in value]
    if isinstance(value, str):
        return value.replace("\0", "")
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), _ROUTES, ids=lambda value: value)
def test_every_route_keeps_to_its_description(
    opened: _App, schema: schemathesis.schemas.BaseSchema, method: str, path: str, mode: schemathesis.GenerationMode
) -> None:
    operation = schema[path][method]
    if mode is schemathesis.GenerationMode.NEGATIVE and not (operation.body or operation.query):
        pytest.skip("anything that could be sent is right")

    @settings(max_examples=_PER_ROUTE, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(mode))
    def keeps_to_it(case: schemathesis.Case) -> None:
        case.body = _as_clients_write(case.body)
        if isinstance(case.body, dict) and "wait_s" in case.body:
            case.body["wait_s"] = 0  # long polls are not what is looked at here
        response = case.call(headers=opened.headers)
        is_legacy = response.status_code == 400  # its word for a job that the worker does not have
        is_beyond_schema = is_legacy or (response.status_code == 422 and response.json().get("code") in _BEYOND_SCHEMAS)
        case.validate_response(response, excluded_checks=[positive_data_acceptance] if is_beyond_schema else [])

    keeps_to_it()
