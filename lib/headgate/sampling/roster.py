"""The roster: which models are sampled, and where the list comes from."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import httpx

from headgate.core import Model, Secret, errors, redacted
from headgate.core.documents import MAX_DOCUMENT_BYTES, document_of, read_document
from headgate.models import BASELINES, TASK_HEADER_OPTION
from headgate.sampling.roster_entries import KeyRules, base_url_problem, read_entries

_UNREADABLE: Final = "Check the address and that it answers; a running campaign keeps its last good roster."


def served_document(data: bytes, source: str) -> Any:
    """Return the parsed JSON document that an address serves."""
    try:
        return document_of(data, is_json=True)
    except ValueError as error:
        said = redacted(str(error), limit_chars=300)
        raise errors.InvalidRosterError(f"{source} cannot be read: {said}") from None


async def fetched(url: str, token: Secret, timeout_s: float, etag: str = "") -> tuple[bytes | None, str]:
    """Return what an http(s) address serves, None if unchanged since `etag`, and its ETag. A redirect is an error."""
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
                return None, etag
            if response.status_code != httpx.codes.OK:
                raise errors.InvalidRosterError(
                    f"{source}: answered HTTP {response.status_code}, not 200", next_step=_UNREADABLE
                )
            return await read_up_to_limit(response), response.headers.get("ETag", "")
    except TimeoutError:
        said = f"did not answer within {timeout_s:g} s"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        said = f"cannot be fetched: {type(error).__name__}: {redacted(str(error), limit_chars=200)}"
    raise errors.InvalidRosterError(f"{source}: {said}", next_step=_UNREADABLE)


async def read_up_to_limit(response: httpx.Response) -> bytes:
    """Return a response's body; if it exceeds `MAX_DOCUMENT_BYTES`, only a beginning that exceeds it as well."""
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) > MAX_DOCUMENT_BYTES:  # parsing refuses it, so the rest need not be read
            break
    return bytes(data)


REMOTE_KEY_PREFIX: Final = "HEADGATE_KEY_"
"""A remote roster could otherwise send any variable of this process to any address; it may name only these."""

BASELINE_ROSTER: Final = "baselines"
"""The roster name of the scripted baselines, for a first run without any endpoint."""

BASELINE_ADDRESS: Final = "http://127.0.0.1:8001/v1"
"""Where `headgate serve-baselines` listens."""

_MAX_LISTED_MODELS: Final = 16
_OPENAI: Final = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Roster:
    """The models to sample, in their order. Never empty; no two share a key or a uid."""

    models: tuple[Model, ...]

    def __post_init__(self) -> None:
        if not self.models:
            raise errors.InvalidRosterError("a roster must hold at least one model (got none)")
        for what in ("key", "uid"):
            counts = Counter(getattr(model, what) for model in self.models)
            if doubled := [value for value, count in counts.items() if count > 1]:
                raise errors.InvalidRosterError(f"more than one model of the roster has the {what} {doubled[0]!r}")

    def chosen(self, names: Collection[str]) -> Roster:
        """Return the models with these names or keys; all models if `names` is empty.

        Raises:
            InvalidRosterError: if no model has one of the names.
        """
        known = {name for model in self.models for name in (model.name, model.key)}
        if unknown := [name for name in names if name not in known]:
            listed = ", ".join(sorted(model.key for model in self.models)[:20])
            raise errors.InvalidRosterError(f"the roster has no model {unknown[0]!r}", next_step=f"It has {listed}.")
        return Roster(tuple(one for one in self.models if not names or one.name in names or one.key in names))

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)


class RosterSource(Protocol):
    """Where a roster comes from. Loaded at the start and at every refresh."""

    async def load(self) -> Roster:
        """Return the current roster.

        Raises:
            InvalidRosterError: if it cannot be read, or an entry breaks a rule.
        """


class RosterAtHand:
    """A roster that was just read: the first `load` returns it, later ones read the source again."""

    def __init__(self, source: RosterSource, roster: Roster) -> None:
        self._source = source
        self._first: Roster | None = roster

    async def load(self) -> Roster:
        """Return the roster; see `RosterSource`."""
        found, self._first = self._first, None
        return await self._source.load() if found is None else found


class StaticRoster:
    """A roster that never changes, for tests and for callers that supply their own models."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._roster = Roster(tuple(models))

    async def load(self) -> Roster:
        """Return the models given at construction."""
        return self._roster


class BaselineRoster(StaticRoster):
    """The three scripted baselines of the environments, served at Headgate's own endpoint."""

    def __init__(self, base_url: str = BASELINE_ADDRESS) -> None:
        options = ((TASK_HEADER_OPTION, True),)
        super().__init__(Model(name, base_url=base_url, uid=uid, options=options) for uid, name in enumerate(BASELINES))


class FileRoster:
    """A roster in a YAML or JSON file (`.json`), read again on every `load`."""

    def __init__(self, path: str | Path, *, environ: Mapping[str, str] | None = None) -> None:
        self._path = Path(path)
        self._keys = KeyRules(os.environ if environ is None else environ)

    async def load(self) -> Roster:
        """Return the roster in the file."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> Roster:
        document = read_document(self._path, errors.InvalidRosterError)
        return Roster(read_entries(document, str(self._path), self._keys))


class HttpRoster:
    """A JSON roster at an http(s) address, downloaded again only when its ETag has changed.

    It is not trusted: its keys may only be `env:` variables whose names begin with `HEADGATE_KEY_`, and none of its
    entries may start programs. Redirects are not followed.
    """

    def __init__(self, url: str, *, timeout_s: float = 10.0, environ: Mapping[str, str] | None = None) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._keys = KeyRules(
            os.environ if environ is None else environ,
            variable_prefix=REMOTE_KEY_PREFIX,
            allow_files=False,
            allow_programs=False,
        )
        self._etag = ""
        self._document: Any = None

    async def load(self) -> Roster:
        """Return the roster that the address serves."""
        source = redacted(self._url, limit_chars=200)
        data, etag = await fetched(self._url, Secret(""), self._timeout_s, self._etag)
        if data is not None:
            document = served_document(data, source)
            models = read_entries(document, source, self._keys)
            # Keep only a valid document and its ETag: an invalid one must be reported again at the next refresh.
            self._document, self._etag = document, etag
            return Roster(models)
        return Roster(read_entries(self._document, source, self._keys))


class OpenAIRoster:
    """The models named by the usual environment variables of OpenAI clients.

    `OPENAI_BASE_URL`, `OPENAI_API_KEY`, and `OPENAI_MODEL` with names separated by commas; without the latter, the
    models that the endpoint lists.
    """

    def __init__(self, *, environ: Mapping[str, str] | None = None, timeout_s: float = 10.0) -> None:
        self._environ = os.environ if environ is None else environ
        self._timeout_s = timeout_s

    async def load(self) -> Roster:
        """Return the models named by the variable, or else listed by the endpoint."""
        url = self._environ.get("OPENAI_BASE_URL", "")
        key = self._environ.get("OPENAI_API_KEY", "")
        if not url and not key:
            raise errors.InvalidRosterError(
                "no roster is given, and neither OPENAI_BASE_URL nor OPENAI_API_KEY is set",
                next_step="Name one with --roster, or with HEADGATE_ROSTER where the worker of flow runs starts, or "
                "give a flow the name of a Model Roster block. The roster `baselines` needs no endpoint. "
                "OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL name models, too.",
            )
        url = (url or _OPENAI).rstrip("/")
        if (problem := base_url_problem(url)) is not None:
            raise errors.InvalidRosterError(f"OPENAI_BASE_URL: {problem}")
        named = [name.strip() for name in self._environ.get("OPENAI_MODEL", "").split(",") if name.strip()]
        served = list(dict.fromkeys(named)) or await self._listed(url, Secret(key))
        document = {
            "models": [{"name": _name_for(name), "model": name, "base_url": url} for name in served],
            "defaults": {"api_key": "env:OPENAI_API_KEY" if key else ""},
        }
        return Roster(read_entries(document, "OPENAI_MODEL" if named else f"{url}/models", KeyRules(self._environ)))

    async def _listed(self, url: str, key: Secret) -> list[str]:
        source = f"{url}/models"
        data, _ = await fetched(source, key, self._timeout_s)
        document = served_document(data or b"", source)
        listed = document.get("data") if isinstance(document, dict) else None
        names = [item["id"] for item in listed or () if isinstance(item, dict) and isinstance(item.get("id"), str)]
        if not 1 <= len(names) <= _MAX_LISTED_MODELS:
            raise errors.InvalidRosterError(
                f"{source} lists {len(names)} models; without OPENAI_MODEL, there must be 1 to {_MAX_LISTED_MODELS}",
                next_step="Name those to sample in OPENAI_MODEL, separated by commas.",
            )
        return names


def roster_source(text: str, *, environ: Mapping[str, str] | None = None) -> RosterSource:
    """Return the source that the setting `roster` names.

    An http(s) address, a file, `baselines` for the scripted baselines, or OpenAI's variables if empty.
    """
    if not text:
        return OpenAIRoster(environ=environ)
    if text == BASELINE_ROSTER:
        return BaselineRoster()
    if text.startswith(("http://", "https://")):
        return HttpRoster(text, environ=environ)
    return FileRoster(text, environ=environ)


def mapped_roster(entries: Mapping[str, Any], *, environ: Mapping[str, str] | None = None) -> StaticRoster:
    """Return a roster from a mapping: name -> the other fields of its entry, or just the address of its endpoint.

    Raises:
        InvalidRosterError: if an entry breaks a rule.
    """
    models = [
        {"name": name} | ({"base_url": entry} if isinstance(entry, str) else dict(entry))
        for name, entry in entries.items()
    ]
    rules = KeyRules(os.environ if environ is None else environ, allow_plain=True)
    return StaticRoster(read_entries({"models": models}, "models", rules))


def _name_for(served: str) -> str:
    """Return the usable name that is closest to what an endpoint calls a model."""
    name = re.sub(r"[^A-Za-z0-9._:@/+-]+", "-", served).lstrip("._:@/+-")
    return re.sub(r"\.{2,}", ".", name)[:200] or "model"
