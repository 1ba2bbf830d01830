"""What is wrong with values that somebody wrote, in one sentence: of each its place, the rule and what was written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin

from headgate.core.errors import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

_RULES: Final = {"tuple_type": "must be a list", "dict_type": "must be a mapping", "model_type": "must be a mapping"}
_SUBJECT: Final = re.compile(r"^\w+ should ")
_SECRET: Final = re.compile("key|token|secret|password")


def flaws_in_words(error: ValidationError, model: type[BaseModel]) -> str:
    """Return everything that is wrong with what was written as a `model`.

    What is misspelt comes first, as it may be why something else is missing; what only follows from another flaw is
    left out. A validator says its rule as `must be …`, or a whole sentence; the value is added unless it is in there.
    """
    flaws = sorted(error.errors(include_url=False), key=lambda flaw: flaw["type"] != "extra_forbidden")
    places = [flaw["loc"] for flaw in flaws]
    return "; ".join(
        _in_words(flaw, model)
        for flaw in flaws
        if not any(len(place) > len(flaw["loc"]) > 0 and place[: len(flaw["loc"])] == flaw["loc"] for place in places)
    )


def text_like(pattern: str, rule: str) -> Callable[[str], str]:
    """Return a validator of text that a pattern has to match whole; otherwise `rule`, such as `must be …`, is said."""
    known = re.compile(pattern)

    def checked(written: str) -> str:
        if known.fullmatch(written) is None:
            raise ValueError(rule)
        return written

    return checked


def _in_words(flaw: Any, model: type[BaseModel]) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in flaw["loc"]).removeprefix(".")
    if flaw["type"] == "extra_forbidden":
        known = _fields_at(model, flaw["loc"][:-1])
        hint = did_you_mean(str(flaw["loc"][-1]), known, otherwise=f"; there are {', '.join(known)}")
        return f"there is no setting {place}{hint}"
    if flaw["type"] == "missing":
        return f"{place} is missing"
    said = _RULES.get(flaw["type"]) or _SUBJECT.sub("must ", str(flaw["msg"]).removeprefix("Value error, "))
    if not said.startswith("must "):
        return f"{place}: {said}" if place else said
    shown = "something else" if _SECRET.search(place.rpartition(".")[2]) else f"{flaw['input']!r:.120}"
    return f"{place} {said}" if "(got " in said else f"{place} {said} (got {shown})"


def _fields_at(model: Any, place: Sequence[str | int]) -> list[str]:
    for part in place:
        if isinstance(part, str):
            inner = model.model_fields[part].annotation
            model = get_args(inner)[0] if get_origin(inner) in {tuple, Union, UnionType} else inner
    return [field.alias or name for name, field in model.model_fields.items()]
