"""Values of a request that break rules: the `errors` of a problem document."""

from __future__ import annotations

import reprlib
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from headgate.core import redacted
from headgate.core.errors import InvalidInputError
from headgate.core.flaws import rule_in_words

Flaw: TypeAlias = dict[str, str]
"""`field`, `rule` and `value` of a value that breaks a rule."""

M = TypeVar("M", bound=BaseModel)

MOST_FLAWS: Final = 10
_VALUE_CHARS: Final = 100
_RULE_CHARS: Final = 300
_MOST_LISTED: Final = 1000


class FlawedError(InvalidInputError):
    """A request breaks rules: `flaws` are the first violations, `count` is how many were found."""

    next_step = "Correct the values in `errors` and send the request again; nothing was changed."

    def __init__(self, flaws: list[Flaw], count: int) -> None:
        got = f" (got {flaws[0]['value']})" if flaws[0]["value"] else ""
        more = f"; and {count - 1} more" if count > 1 else ""
        super().__init__(f"{flaws[0]['field']}: {flaws[0]['rule']}{got}{more}")
        self.flaws = flaws


def flaw(field: str, rule: str, value: str = "") -> Flaw:
    """Return one flaw; `value` is empty where it adds nothing to the rule."""
    return {"field": field, "rule": rule[:_RULE_CHARS], "value": value}


def flaws_of(error: ValidationError, place: str) -> list[Flaw]:
    """Return the first flaws that pydantic found; `place` is `body`, `query`, `path` or an entry of a body."""
    if error.error_count() > _MOST_LISTED:  # formatting all of them, only to show ten, would take too long
        return [flaw(place, f"{error.error_count()} values break its rules")]
    return [
        flaw(
            ".".join((place, *(str(part)[:_VALUE_CHARS] for part in item["loc"]))),
            rule_in_words(item),
            _shown(item["input"]),
        )
        for item in error.errors(include_url=False, include_context=False)[:MOST_FLAWS]
    ]


def validated(model: type[M], given: Any, place: str) -> M:
    """Return the given value as its model; raises FlawedError where it breaks rules. `place` as in `flaws_of`."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise FlawedError(flaws_of(error, place), error.error_count()) from None


def _shown(value: object) -> str:
    """Return the beginning of a value, formatting no more of a large one than that."""
    if isinstance(value, bytes):
        text = value[:_VALUE_CHARS].decode("utf-8", "replace")
    elif isinstance(value, dict | list) and len(value) > MOST_FLAWS:
        text = f"{len(value)} entries"
    elif isinstance(value, dict | list):
        text = reprlib.repr(value)
    else:
        text = repr(value[:_VALUE_CHARS] if isinstance(value, str) else value)
    text = text if len(text) <= _VALUE_CHARS else text[: _VALUE_CHARS - 1] + "…"
    return redacted(text.encode("utf-8", "replace").decode())
