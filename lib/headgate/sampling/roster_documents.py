"""Documents of a roster: fetched with bounds, parsed without losing anything in silence."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final

import httpx
import yaml

from headgate.core import Secret, errors, redacted
from headgate.sampling.roster_entries import base_url_problem

MAX_ROSTER_BYTES: Final = 5_000_000

_UNREADABLE: Final = "Check the address and that it answers; a campaign that runs keeps its last good roster."


def parsed_document(data: bytes, source: str, *, is_json: bool | None = None) -> Any:
    """Return the document in `data`: JSON, or YAML where `source` does not end with `.json`.

    Raises:
        InvalidRosterError: if it is too large, neither, or names a field of one mapping twice.
    """
    if len(data) > MAX_ROSTER_BYTES:
        raise errors.InvalidRosterError(f"{source}: is larger than {MAX_ROSTER_BYTES} bytes")
    try:
        text = data.decode("utf-8")
        if source.endswith(".json") if is_json is None else is_json:
            return json.loads(text, object_pairs_hook=_unique)
        return yaml.load(text, _UniqueLoader)  # noqa: S506 - a SafeLoader with one rule more
    except UnicodeDecodeError:
        raise errors.InvalidRosterError(f"{source}: is not UTF-8 text") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = redacted(" ".join(str(error).split()), limit_chars=300)
        raise errors.InvalidRosterError(f"{source}: cannot be parsed: {said}") from None


@dataclass(frozen=True, slots=True)
class Fetched:
    """What an address served; `data` is None when it did not change."""

    data: bytes | None
    etag: str


async def fetched(url: str, token: Secret, timeout_s: float, etag: str = "") -> Fetched:
    """Return what an http(s) address serves, or that it is what `etag` names. Redirects are not followed.

    Raises:
        InvalidRosterError: if it cannot be fetched, or the address is one where machines keep credentials.
    """
    source = redacted(url, limit_chars=200)
    if (problem := base_url_problem(url.partition("?")[0])) is not None:
        raise errors.InvalidRosterError(f"roster address {problem}")
    headers = {"Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token.reveal()}"
    if etag:
        headers["If-None-Match"] = etag
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(trust_env=False, timeout=timeout_s) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            if response.status_code == httpx.codes.NOT_MODIFIED and etag:
                return Fetched(None, etag)
            if response.status_code != httpx.codes.OK:
                raise errors.InvalidRosterError(
                    f"{source}: answered HTTP {response.status_code}, not 200", next_step=_UNREADABLE
                )
            return Fetched(await read_up_to_limit(response), response.headers.get("ETag", ""))
    except TimeoutError:
        said = f"did not answer within {timeout_s:g} s"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        said = f"cannot be fetched: {type(error).__name__}: {redacted(str(error), limit_chars=200)}"
    raise errors.InvalidRosterError(f"{source}: {said}", next_step=_UNREADABLE)


async def read_up_to_limit(response: httpx.Response) -> bytes:
    """Return the body of an answer, or its beginning, of which no more than `MAX_ROSTER_BYTES` are of use."""
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) > MAX_ROSTER_BYTES:  # refused when it is parsed; the rest is not read
            break
    return bytes(data)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"field {next(name for name in names if names.count(name) > 1)!r} stands twice in one mapping")
    return document


class _UniqueLoader(yaml.SafeLoader):
    """YAML in which a field that stands twice is an error: the first one would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and names.count(key.value) > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"field {key.value!r} stands twice in one mapping", problem_mark=key.start_mark
                )
        return super().construct_mapping(node, deep)
