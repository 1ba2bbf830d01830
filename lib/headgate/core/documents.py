"""Reads documents that people write in YAML or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

from headgate.core.errors import HeadgateError, InvalidInputError, did_you_mean

MAX_DOCUMENT_BYTES: Final = 5_000_000


class _UniqueLoader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys: the first one would be lost silently."""

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
    """Return the value of a YAML or JSON document, None for an empty YAML one.

    Raises:
        ValueError: saying what is wrong and where, without the line itself, which may contain a secret.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"it is larger than {MAX_DOCUMENT_BYTES:,} bytes")
    try:
        text = data.decode("utf-8")
        if is_json:
            return json.loads(text, object_pairs_hook=_unique)
        return yaml.load(text, _UniqueLoader)  # noqa: S506 - a SafeLoader with one more rule
    except UnicodeDecodeError:
        flaw = "it is not UTF-8 text"
    except RecursionError:
        flaw = "its values are nested too deeply"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        flaw = f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}" if mark else f"{error.problem}"
    except (yaml.YAMLError, ValueError) as error:
        flaw = " ".join(str(error).split())[:300]
    raise ValueError(flaw) from None


def read_document(
    path: Path, refused: type[HeadgateError] = InvalidInputError, *, what: str = "", next_step: str | None = None
) -> Any:
    """Return the value in a file, None for an empty one.

    Args:
        path: the file, in JSON if its name ends with `.json`, else in YAML.
        refused: class of the error that is raised.
        what: name of the file in the error, such as `the rules`.
        next_step: next step of the error, in place of its default.

    Raises:
        HeadgateError: of the class `refused`, if it cannot be read.
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
