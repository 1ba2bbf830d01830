"""The OpenAPI description of the routes in `v1.ROUTES`; FastAPI describes the legacy protocol's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, Literal

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from headgate.jobqueue.server.route import Route
from headgate.jobqueue.wire import ProblemOut
from headgate.net.refusals import PROBLEM_TYPE

_TEMPLATE: Final = "#/components/schemas/{model}"
_Use = tuple[type[BaseModel], JsonSchemaMode]

_ALWAYS: Final = (401, 403, 421, 429, 500, 503)
_OF_BODIES: Final = (408, 413, 415)
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same request with the same key is answered the same, and nothing is done twice.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]([ -~]*[!-~])?$"},
}
_SECURITY: Final = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token of `headgate jobqueue token create`."},
    "password": {"type": "http", "scheme": "basic", "description": "The same token as password, with any user name."},
}


def add_routes(document: dict[str, Any], routes: Iterable[Route]) -> dict[str, Any]:
    """Return an OpenAPI document with the routes added."""
    listed = list(routes)
    uses: list[_Use] = [(ProblemOut, "serialization")]
    for route in listed:
        uses += [(route.takes, "validation")] if route.takes else []
        uses += [(route.answers, "serialization")] if route.answers else []
    schemas, definitions = models_json_schema(list(dict.fromkeys(uses)), ref_template=_TEMPLATE)
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(definitions["$defs"])
    components["securitySchemes"] = _SECURITY
    paths = document.setdefault("paths", {})
    for route in listed:
        shown = route.pattern.replace(":path", "")
        paths.setdefault(shown, {})[route.method.lower()] = _operation(route, schemas)
    return document


def _operation(route: Route, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    handler = route.handler
    parameters = [*_parameters(route.path, "path"), *_parameters(route.query, "query")]
    operation: dict[str, Any] = {
        "tags": [route.tag],
        "summary": route.summary,
        "description": _described(route),
        "operationId": f"{route.method.lower()}_{getattr(handler, '__name__', '').rstrip('_')}",
        "responses": _responses(route, schemas),
        "security": [] if route.scope is None else [{"token": []}, {"password": []}],
    }
    if route.method == "POST":
        parameters.append(_KEY)
    if parameters:
        operation["parameters"] = parameters
    if route.takes is not None:
        content: dict[str, Any] = {"schema": schemas[route.takes, "validation"]}
        if route.example:
            content["example"] = dict(route.example)
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    return operation


def _described(route: Route) -> str:
    text = (route.handler.__doc__ or route.summary).partition("\n")[0]
    return text if route.scope is None else f"{text} Scope: `{route.scope.value}`."


def _parameters(model: type[BaseModel], place: Literal["path", "query"]) -> list[dict[str, Any]]:
    schema = model.model_json_schema(ref_template=_TEMPLATE)
    inner = schema.get("$defs", {})
    found = []
    for name, field in schema.get("properties", {}).items():
        one = _inlined(field, inner)
        found.append(
            {
                "name": name,
                "in": place,
                "required": place == "path" or name in schema.get("required", ()),
                "description": one.pop("description", ""),
                "schema": {key: value for key, value in one.items() if key != "title"},
            }
        )
    return found


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema of a parameter without references, and without null, which no query can carry."""
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    found = {key: _inlined(value, definitions) for key, value in schema.items()}
    options = [one for one in found.pop("anyOf", []) if one != {"type": "null"}]
    if len(options) == 1:
        found |= options[0]
    elif options:
        found["anyOf"] = options
    return {key: value for key, value in found.items() if not (key == "default" and value is None)}


def _responses(route: Route, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    answer = {} if route.answers is None else schemas[route.answers, "serialization"]
    done: dict[str, Any] = {"description": "Done.", "content": {route.media_type: {"schema": answer or {}}}}
    if route.method == "POST":
        done["headers"] = {
            "Idempotent-Replay": {
                "description": "`true` on an answer that was given before to the same Idempotency-Key.",
                "schema": {"type": "string"},
            }
        }
    responses = {"200": done}
    for status in sorted({*_statuses(route)}):
        responses[str(status)] = _error(status, route, schemas)
    return responses


def _statuses(route: Route) -> tuple[int, ...]:
    if route.scope is None:
        return (*route.errors, 422, 500)
    return (*_ALWAYS, *route.errors, 422, *(_OF_BODIES if route.takes else ()))


def _error(status: int, route: Route, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    if route.scope is None and status == 503 and route.answers is not None:
        content = {route.media_type: {"schema": schemas[route.answers, "serialization"]}}
    else:
        content = {PROBLEM_TYPE: {"schema": schemas[ProblemOut, "serialization"]}}
    response: dict[str, Any] = {"description": f"{HTTPStatus(status).phrase}.", "content": content}
    if status in {429, 503} and route.scope is not None:
        response["headers"] = {
            "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}
        }
    if status == 401:
        response["headers"] = {"WWW-Authenticate": {"description": "How to sign in.", "schema": {"type": "string"}}}
    return response
