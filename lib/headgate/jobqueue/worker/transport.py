"""How a call becomes a request of httpx, for both clients."""

from __future__ import annotations

from typing import Any, Final, TypedDict

import httpx
from pydantic import BaseModel

from headgate.jobqueue.worker.address import QueueAddress
from headgate.jobqueue.worker.calls import Call

CONNECT_S: Final = 10.0
ANSWER_S: Final = 30.0
"""For an answer that the server gives at once; a commit behind a full group takes a fraction of it."""

BEYOND_WAIT_S: Final = 10.0
"""For the answer to a long poll, beyond the time that the server was asked to wait."""


class ClientOptions(TypedDict):
    """What both clients of httpx are made with."""

    base_url: str
    headers: dict[str, str]
    limits: httpx.Limits
    trust_env: bool


def client_options(address: QueueAddress) -> ClientOptions:
    """Return how to make a client.

    Long polls each hold a connection, so that their number is not bounded; the proxies of the environment are for the
    world outside, and would cut long polls off.
    """
    return ClientOptions(
        base_url=address.url,
        headers={**address.headers, "User-Agent": "headgate-jobqueue"},
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        trust_env=False,
    )


def request_options(call: Call[Any], longest_s: float | None = None) -> dict[str, Any]:
    """Return the arguments of `httpx.Client.request`; `longest_s` bounds the wait for an answer."""
    headers = {"Idempotency-Key": call.key} if call.key else {}
    content = None if call.body is None else _content(call.body)
    if content is not None:
        headers["Content-Type"] = "application/json"
    answer_s = call.wait_s + BEYOND_WAIT_S if call.wait_s else ANSWER_S
    connect_s = CONNECT_S
    if longest_s is not None:
        answer_s, connect_s = min(answer_s, longest_s), min(connect_s, longest_s)
    return {
        "method": call.method,
        "url": call.path,
        "params": dict(call.query) or None,
        "content": content,
        "headers": headers,
        "timeout": httpx.Timeout(ANSWER_S, connect=connect_s, read=answer_s, pool=CONNECT_S),
    }


def _content(body: BaseModel) -> bytes:
    # What was not given stays out: a server's own keys are passed on to workers as they came.
    return body.model_dump_json(exclude_unset=True).encode()
