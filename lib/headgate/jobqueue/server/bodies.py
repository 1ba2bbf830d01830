"""Reads the body of a request: bounded in size and in time."""

from __future__ import annotations

import asyncio

from starlette.types import Receive

from headgate.jobqueue.server.errors import BodyTooLargeError, BodyTooSlowError, HungUp, NotJsonError


async def read_body(receive: Receive, headers: dict[bytes, bytes], most_bytes: int, deadline_s: float) -> bytes:
    """Return the whole body of a request.

    Raises:
        NotJsonError: its content type is another one. A web page can make a browser send other types to any address
            without asking; JSON it cannot.
        BodyTooLargeError: it has more than `most_bytes`.
        BodyTooSlowError: it was not there after `deadline_s`.
        HungUp: the client is gone.
    """
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json" and not media_type.endswith(b"+json"):
        raise NotJsonError(f"the body must be JSON (Content-Type: {media_type.decode('latin-1')[:60]!r})")
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > most_bytes:
        raise BodyTooLargeError(f"the body must be at most {most_bytes} bytes (got {int(announced)})")
    try:
        async with asyncio.timeout(deadline_s):
            return await _collected(receive, most_bytes)
    except TimeoutError:
        raise BodyTooSlowError(f"the body did not arrive within {deadline_s:g} s") from None


async def _collected(receive: Receive, most_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HungUp
        part = message.get("body", b"")
        size += len(part)
        if size > most_bytes:
            raise BodyTooLargeError(f"the body must be at most {most_bytes} bytes (got more)")
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
