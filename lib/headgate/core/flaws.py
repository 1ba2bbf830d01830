"""Validation errors in sentences for people: the value, and the rule that it breaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, get_args

from headgate.core.errors import HeadgateError, did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

_RULES: Final = {"tuple_type": "must be a list", "dict_type": "must be a mapping", "model_type": "must be a mapping"}
_SUBJECT: Final = re.compile(r"^\w+ should ")
_SECRET: Final = re.compile("key|token|secret|password")


def flaws_in_words(error: ValidationError, model: type[BaseModel]) -> str:
    """Return all validation errors of a `model` as one text.

    Misspelt names come first, as they may be why something else is missing; errors that only follow from others are
    left out. A validator states its rule as `must be …`, or a whole sentence; the value is added unless it is in there.
    """
    flaws = sorted(error.errors(include_url=False), key=lambda flaw: flaw["type"] != "extra_forbidden")
    places = [flaw["loc"] for flaw in flaws]
    return "; ".join(
        _in_words(flaw, model)
        for flaw in flaws
        if not any(len(place) > len(flaw["loc"]) > 0 and place[: len(flaw["loc"])] == flaw["loc"] for place in places)
    )


@contextmanager
def flaws_raised(
    model: type[BaseModel], kind: type[HeadgateError], before: str = "", next_step: str | None = None
) -> Iterator[None]:
    """Raise a `ValidationError` of `model` inside as an error of `kind`, in words after `before`."""
    from pydantic import ValidationError  # noqa: PLC0415 - with a model it is loaded already

    try:
        yield
    except ValidationError as error:
        raise kind(f"{before}{flaws_in_words(error, model)}", next_step=next_step) from None


def text_like(pattern: str, rule: str) -> Callable[[str], str]:
    """Return a validator of texts that a pattern must match as a whole; `rule` (`must be …`) is its error."""
    known = re.compile(pattern)

    def checked(written: str) -> str:
        if known.fullmatch(written) is None:
            raise ValueError(rule)
        return written

    return checked


def rule_in_words(flaw: Any) -> str:
    """Return the rule that one of pydantic's errors is about: `must be …`, or a validator's message."""
    return _RULES.get(flaw["type"]) or _SUBJECT.sub("must ", str(flaw["msg"]).removeprefix("Value error, "))


def _in_words(flaw: Any, model: type[BaseModel]) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in flaw["loc"]).removeprefix(".")
    if flaw["type"] == "extra_forbidden":
        known = _fields_at(model, flaw["loc"][:-1])
        hint = did_you_mean(str(flaw["loc"][-1]), known, otherwise=f"; there are {', '.join(known)}")
        return f"there is no setting {place}{hint}"
    if flaw["type"] == "missing":
        return f"{place} is missing"
    said = rule_in_words(flaw)
    if not said.startswith("must "):
        return f"{place}: {said}" if place else said
    shown = "something else" if _SECRET.search(place.rpartition(".")[2]) else f"{flaw['input']!r:.120}"
    told = f"{place or 'it'} {said}"
    return told if "(got " in said else f"{told} (got {shown})"


def _fields_at(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    models = [model]
    for part in filter(lambda part: isinstance(part, str), place):
        fields = [one.model_fields[part] for one in models if part in one.model_fields]
        of_union = [one for one in models if part in (one.__name__, *(f.default for f in one.model_fields.values()))]
        models = [inner for field in fields for inner in _models_in(field.annotation)] or of_union or models
    return list(dict.fromkeys(field.alias or name for one in models for name, field in one.model_fields.items()))


def _models_in(annotation: Any) -> list[Any]:
    """Return the models in a type annotation, including those of list entries and union members."""
    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
