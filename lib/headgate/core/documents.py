"""Documents that somebody wrote, in YAML or in JSON: read whole, and what is wrong with one is told in a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import yaml

from headgate.core.errors import HeadgateError, InvalidInputError, did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

MAX_DOCUMENT_BYTES: Final = 5_000_000


class _UniqueLoader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error: the first one would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    return document


def document_of(data: bytes, *, is_json: bool = False) -> Any:
    """Return the value that a document in YAML or in JSON holds, None for an empty one in YAML.

    Raises:
        ValueError: saying what is wrong and where, without the line itself: it may hold a secret.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"it is larger than {MAX_DOCUMENT_BYTES:,} bytes")
    try:
        text = data.decode("utf-8")
        if is_json:
            return json.loads(text, object_pairs_hook=_unique)
        return yaml.load(text, _UniqueLoader)  # noqa: S506 - a SafeLoader with one rule more
    except UnicodeDecodeError:
        flaw = "it is not UTF-8 text"
    except RecursionError:
        flaw = "its values lie too deep"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        flaw = f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}" if mark else f"{error.problem}"
    except (yaml.YAMLError, ValueError) as error:
        flaw = " ".join(str(error).split())[:300]
    raise ValueError(flaw) from None


def read_document(
    path: Path, refused: type[HeadgateError] = InvalidInputError, *, what: str = "", next_step: str | None = None
) -> Any:
    """Return the value that a file holds, None for an empty one.

    Args:
        path: of the file, which is in JSON where it ends with `.json`, and in YAML else.
        refused: the error that is raised.
        what: the file is called in it, such as `the rules`.
        next_step: of the error, in place of its own.

    Raises:
        HeadgateError: of the type `refused`, if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return document_of(file.read(MAX_DOCUMENT_BYTES + 1), is_json=path.suffix == ".json")
    except FileNotFoundError as error:
        beside = (one.name for one in path.parent.glob("*"))
        flaw, next_step = f"{error.strerror}{did_you_mean(path.name, beside)}", next_step or "Correct the path."
    except (OSError, ValueError) as error:
        flaw = getattr(error, "strerror", None) or str(error)
    raise refused(f"{what} {path} cannot be read: {flaw}".lstrip(), next_step=next_step)


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


def rule_in_words(flaw: Any) -> str:
    """Return the rule that one of pydantic's errors is of: `must be …`, or what a validator said."""
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
    return f"{place} {said}" if "(got " in said else f"{place} {said} (got {shown})"


def _fields_at(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    models = [model]
    for part in filter(lambda part: isinstance(part, str), place):
        fields = [one.model_fields[part] for one in models if part in one.model_fields]
        of_union = [one for one in models if part in (one.__name__, *(f.default for f in one.model_fields.values()))]
        models = [inner for field in fields for inner in _models_in(field.annotation)] or of_union or models
    return list(dict.fromkeys(field.alias or name for one in models for name, field in one.model_fields.items()))


def _models_in(annotation: Any) -> list[Any]:
    """Return the models that a value may be, or be a list of."""
    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
