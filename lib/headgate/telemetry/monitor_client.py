"""A client of a campaign's monitoring API, through which commands and the console query and steer it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from headgate.config import Settings
from headgate.core import errors
from headgate.core.errors import HeadgateError, InvalidInputError, UnauthorizedError, errors_by_code
from headgate.net.clients import client_of

RUN_HEADER: Final = "X-Headgate-Run"
"""Names the run for which a request is meant."""

_TIMEOUT_S: Final = 5.0
_REFUSALS: Final = errors_by_code(errors)
"""Error classes of a campaign's refusals, by code; the message is the campaign's."""


class MonitorClient:
    """A client of one campaign's monitoring API; an async context manager. `address` is its URL, `run_id` the run's."""

    def __init__(self, settings: Settings, address: str, run_id: str = "") -> None:
        """Prepare the client.

        Args:
            settings: source of the monitoring API's token.
            address: its URL.
            run_id: the only run that may answer.

        Raises:
            InvalidInputError: if the address is not valid.
        """
        self.address = address.rstrip("/")
        token = settings.monitor_token.get_secret_value()
        self._client = client_of(self.address, token, timeout_s=_TIMEOUT_S)
        self.run_id = run_id
        if run_id:
            self._client.headers[RUN_HEADER] = run_id

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections; may be called twice."""
        await self._client.aclose()

    async def campaign(self) -> str:
        """Return the name of the campaign that runs there.

        Raises:
            UnauthorizedError: if the token is missing or wrong.
            InvalidInputError: if nothing answers, or something other than a campaign.
            MisdirectedError: if another run answers.
        """
        try:
            answer = await self._asked("GET", "/status/summary")
        except httpx.HTTPError as error:
            raise InvalidInputError(
                f"no campaign answers at {self.address} ({type(error).__name__})",
                next_step="Start it with --enable-monitoring, or leave --url out to ask the journal.",
            ) from None
        document = self._checked(answer) if answer.status_code == httpx.codes.MISDIRECTED_REQUEST else _json(answer)
        if answer.status_code != httpx.codes.OK or not isinstance(document.get("campaign"), str):
            raise InvalidInputError(
                f"what answers at {self.address} is not a campaign (HTTP {answer.status_code})",
                next_step="Give the address of a campaign's monitoring API with --url.",
            )
        return str(document["campaign"])

    async def task(self, task_id: str) -> dict[str, Any] | None:
        """Return the campaign's answer about a task, None if it does not know the task."""
        answer = await self._asked("GET", f"/status/tasks/{task_id}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found: dict[str, Any] = self._checked(answer)["task"]
        return found

    async def next_task(self, model: str, environment: str, campaign: str, *, is_open: bool = True) -> dict[str, Any]:
        """Return the open task of a model in an environment that runs next; else, unless `is_open`, why there is none.

        Raises:
            InvalidInputError: if there is none, or the pair is not sampled.
            NotFoundError: if the model does not exist; unless `is_open`, also if the environment does not.
        """
        query = {"model": model, "environment": environment, "limit": "1"}
        said = await self.document("/status/tasks", query)
        found: dict[str, Any] | None = next(iter(said["tasks"]), None if is_open else said.get("next"))
        if found is None:
            await self.document(f"/status/models/{quote(model, safe='/')}")
            if not is_open:
                await self.document(f"/status/env/{quote(environment, safe='/')}")
            raise InvalidInputError(
                f"campaign {campaign} has no open task of {model} in {environment}",
                next_step="Check the names with `headgate models` and `headgate environments`, or give the task's "
                "number.",
            )
        return found

    async def document(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
        """Return the answer of an API route.

        Raises:
            UnauthorizedError: if the token is missing or wrong.
            NotFoundError: if it does not exist.
        """
        return self._checked(await self._asked("GET", path, params=query))

    async def steer(self, order: Mapping[str, Any], *, dry_run: bool = False, operator: str = "") -> dict[str, Any]:
        """Steer the campaign; return what was done, or with `dry_run` what would be.

        Args:
            order: the fields of `POST /controls`, such as `verb` and `model`.
            dry_run: change nothing.
            operator: the user on whose behalf a trusted service asks.

        Raises:
            NotFoundError: if the model, environment or change does not exist.
            InvalidInputError: if a value breaks a rule.
            ControlChangedError: if the control was changed first.
            UnauthorizedError: if the token is missing, wrong, or may not steer.
        """
        headers = {"Content-Type": "application/json"} | ({"X-Headgate-Operator": operator} if operator else {})
        # The server refuses a value that is not a number with a clear message; httpx would raise.
        body = json.dumps({**order, "dry_run": dry_run})
        return self._checked(await self._asked("POST", "/controls", content=body, headers=headers))

    async def _asked(self, method: str, path: str, **further: Any) -> httpx.Response:
        answer = await self._client.request(method, path, **further)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            is_sent = "Authorization" in self._client.headers
            refuses = "does not accept the monitor_token that was sent" if is_sent else "requires a token"
            raise UnauthorizedError(
                f"the campaign at {self.address} {refuses}",
                next_step="Set monitor_token (HEADGATE_MONITOR_TOKEN) to its own, or to one of its monitor_tokens.",
            )
        return answer

    def _checked(self, answer: httpx.Response) -> dict[str, Any]:
        document = _json(answer)
        if answer.status_code == httpx.codes.OK:
            return document
        if (kind := _REFUSALS.get(document.get("code", ""))) is not None:
            raise kind(document["detail"], next_step=document.get("next_step"))
        raise HeadgateError(
            f"the campaign at {self.address} could not answer (HTTP {answer.status_code})",
            next_step="Its log says why.",
        )


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
