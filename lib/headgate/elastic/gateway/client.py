"""A client of a gateway's control API, to watch and steer a pool."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx
import orjson
from pydantic import ValidationError

from headgate import __version__
from headgate.core import Secret, redacted
from headgate.core import errors as core_errors
from headgate.core.errors import HeadgateError, errors_by_code
from headgate.elastic import errors
from headgate.elastic.errors import GatewayUnreachableError
from headgate.elastic.gateway.status import GatewayStatus

TIMEOUT_S: Final = 10.0

_ERRORS: Final = errors_by_code(core_errors, errors)
"""Errors by their code, so that callers get the same exception types as within one process."""


class GatewayClient:
    """Talks to one gateway. Use it as a context manager, or close it.

    Every call raises GatewayUnreachableError if no gateway answers, and otherwise the error that the gateway
    answered with: UnauthorizedError, ForbiddenError, UnknownWorkerError, InvalidElasticError, ….
    A worker is named by its id, or by a part of it that no other worker has, such as its port.

    Args:
        url: address of the gateway, with or without `/v1`.
        token: for gateways that require one; calls that change the pool need an operator's.
        timeout_s: limit of a call in seconds; a call that waits for a change gets its waiting time in addition.
    """

    def __init__(self, url: str, token: Secret | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        headers = {"User-Agent": f"headgate/{__version__}"}
        if token:
            headers["Authorization"] = f"Bearer {token.reveal()}"
        self._timeout_s = timeout_s
        verify = httpx.create_ssl_context()  # respects SSL_CERT_FILE, which `trust_env=False` would ignore
        self._http = httpx.Client(headers=headers, timeout=timeout_s, trust_env=False, verify=verify)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; legal twice."""
        self._http.close()

    def status(self) -> GatewayStatus:
        """Return the status of gateway and pool."""
        return self._status(self._call("GET", "status"))

    def watch(self, wait_s: float = 30.0) -> Iterator[GatewayStatus]:
        """Yield the status: now, then whenever it has changed, and every `wait_s` seconds at the latest."""
        seen = ""
        while True:
            reply = self._call("GET", f"status?wait={wait_s:g}", wait_s=wait_s, headers={"If-None-Match": seen})
            if reply.status_code == httpx.codes.NOT_MODIFIED:
                reply = self._call("GET", "status")  # only durations have changed
            seen = reply.headers.get("ETag", "")
            yield self._status(reply)

    def scale(self, workers: int | None) -> GatewayStatus:
        """Keep this many workers awake, whatever the load; None returns the decision to the policy."""
        return self._change("scale", {"workers": workers})

    def drain(self, worker: str) -> GatewayStatus:
        """Put a worker to sleep and leave it asleep until `unpin`."""
        return self._change(f"workers/{quote(worker, safe='')}/drain")

    def wake(self, worker: str) -> GatewayStatus:
        """Wake a worker and leave it awake until `unpin`."""
        return self._change(f"workers/{quote(worker, safe='')}/wake")

    def unpin(self, worker: str) -> GatewayStatus:
        """Let a worker follow the load again."""
        return self._change(f"workers/{quote(worker, safe='')}/unpin")

    def wake_all(self, for_s: float) -> GatewayStatus:
        """Wake every worker and put none to sleep for `for_s` seconds, or until `resume`."""
        return self._change("wake-all", {"for_s": for_s})

    def resume(self) -> GatewayStatus:
        """Follow the load again: ends `wake_all` and `scale`; pinned workers stay pinned."""
        return self._change("resume")

    def _change(self, path: str, body: object = None) -> GatewayStatus:
        return self._status(self._call("POST", path, body={} if body is None else body))

    def _status(self, reply: httpx.Response) -> GatewayStatus:
        try:
            return GatewayStatus.from_json(reply.content)
        except ValidationError:
            raise self._no_gateway(reply) from None

    def _call(
        self, method: str, path: str, *, body: object = None, wait_s: float = 0.0, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        try:
            reply = self._http.request(
                method, f"{self.url}/elastic/v1/{path}", json=body, headers=headers, timeout=self._timeout_s + wait_s
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = redacted(str(error) or type(error).__name__, limit_chars=200)
        else:
            if reply.is_success or reply.status_code == httpx.codes.NOT_MODIFIED:
                return reply
            raise self._error_of(reply)
        raise GatewayUnreachableError(f"No elastic gateway answers at {redacted(self.url)}: {said}")

    def _error_of(self, reply: httpx.Response) -> HeadgateError:
        try:
            problem: Any = orjson.loads(reply.content)
            kind = _ERRORS[problem["code"]]
            return kind(str(problem["detail"]), next_step=str(problem["next_step"]))
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return self._no_gateway(reply)

    def _no_gateway(self, reply: httpx.Response) -> GatewayUnreachableError:
        said = redacted(reply.text, limit_chars=120)
        return GatewayUnreachableError(
            f"What answers at {redacted(self.url)} is not an elastic gateway of this version "
            f"(it answered {reply.status_code}: {said!r})"
        )
