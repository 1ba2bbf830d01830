"""Asking a running campaign by its monitoring API."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

import httpx

from headgate.config import Settings
from headgate.core.errors import HeadgateError, InvalidInputError, UnauthorizedError

_TIMEOUT_S: Final = 5.0
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - addresses to ask, not to listen on


class MonitorClient:
    """A client of one campaign's monitoring API; an async context manager. `address` is its URL."""

    def __init__(self, settings: Settings, address: str | None = None) -> None:
        """Prepare to ask.

        Args:
            settings: name host, port and token of the monitoring API.
            address: in place of host and port; then not answering is an error.
        """
        self._is_named = address is not None
        self.address = (address or _address(settings)).rstrip("/")
        token = settings.monitor_token.get_secret_value()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.AsyncClient(timeout=_TIMEOUT_S, headers=headers, trust_env=False)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def campaign(self) -> str | None:
        """Return the name of the campaign that runs there, None when nothing answers.

        Raises:
            UnauthorizedError: if the token is missing or wrong.
            InvalidInputError: if something else answers, or nothing at an address that was given.
        """
        try:
            answer = await self._get("/status/summary")
        except httpx.HTTPError as error:
            if self._is_named:
                raise InvalidInputError(
                    f"no campaign answers at {self.address} ({type(error).__name__})",
                    next_step="Start it with --enable-monitoring, or leave --url out to ask the journal.",
                ) from None
            return None
        document = _json(answer)
        if answer.status_code != httpx.codes.OK or not isinstance(document.get("campaign"), str):
            raise InvalidInputError(
                f"what answers at {self.address} is no campaign (HTTP {answer.status_code})",
                next_step="Give the address of a campaign's monitoring API with --url.",
            )
        return str(document["campaign"])

    async def task(self, task_id: str) -> dict[str, Any] | None:
        """Return what the campaign says of a task, None when it does not know it."""
        answer = await self._get(f"/status/tasks/{task_id}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found: dict[str, Any] = self._checked(answer)["task"]
        return found

    async def tasks(self, model: str, environment: str) -> list[dict[str, Any]]:
        """Return the open tasks of a model in an environment, the one that runs next first."""
        answer = await self._get("/status/tasks", {"model": model, "environment": environment, "limit": "1"})
        found: list[dict[str, Any]] = self._checked(answer)["tasks"]
        return found

    async def _get(self, path: str, query: dict[str, str] | None = None) -> httpx.Response:
        answer = await self._client.get(f"{self.address}{path}", params=query)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise UnauthorizedError(
                f"the campaign at {self.address} asks for a token",
                next_step="Set monitor_token to the one that it was started with (HEADGATE_MONITOR_TOKEN).",
            )
        return answer

    def _checked(self, answer: httpx.Response) -> dict[str, Any]:
        if answer.status_code != httpx.codes.OK:
            raise HeadgateError(
                f"the campaign at {self.address} could not answer (HTTP {answer.status_code})",
                next_step="Its log says why.",
            )
        return _json(answer)


def _address(settings: Settings) -> str:
    host = _EVERYWHERE.get(settings.monitor_host, settings.monitor_host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.monitor_port}"


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
