"""Errors of an HTTP API as RFC 9457 problem documents."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headgate.core import errors

PROBLEM_TYPE: Final = "application/problem+json"


def problem(status: int, detail: str, *, code: str = "", next_step: str = "", **more: Any) -> JSONResponse:
    """Return a problem document: `type`, `title`, `status`, `detail`, and the error's code and next step."""
    title = HTTPStatus(status).phrase
    document = {"type": f"urn:headgate:error:{code}" if code else "about:blank", "title": title, "status": status}
    document |= {"detail": detail} | ({"code": code} if code else {}) | ({"next_step": next_step} if next_step else {})
    return JSONResponse(document | more, status, media_type=PROBLEM_TYPE)


def problem_of(error: errors.HeadgateError) -> JSONResponse:
    """Return the problem document of one of Headgate's own errors."""
    response = problem(error.http_status, error.message, code=error.code, next_step=error.next_step)
    if error.http_status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def answer_with_problems(app: FastAPI) -> None:
    """Make every error that `app` answers with a problem document; what was unexpected is logged, not shown."""

    async def ours(_: Request, error: Exception) -> Response:
        if not isinstance(error, errors.HeadgateError):
            raise error
        return problem_of(error)

    async def http(_: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        response = problem(error.status_code, str(error.detail))
        response.headers.update(error.headers or {})
        return response

    async def invalid(_: Request, error: Exception) -> Response:
        if not isinstance(error, RequestValidationError):
            raise error
        # The values themselves are left out: they may be a token in the wrong place.
        wrong = [{"where": ".".join(str(part) for part in item["loc"]), "rule": item["msg"]} for item in error.errors()]
        detail = "; ".join(f"{item['where']}: {item['rule']}" for item in wrong)
        return problem(422, detail, code=errors.InvalidInputError.code, errors=wrong)

    async def unexpected(_: Request, __: Exception) -> Response:
        # Starlette raises the error again after this answer, and the server logs it with its traceback.
        return problem(500, "the server failed to answer", code="internal", next_step="The server's log says why.")

    app.add_exception_handler(errors.HeadgateError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, unexpected)
