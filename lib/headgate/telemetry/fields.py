"""Events as flat, printable fields without secrets, for log lines and JSON lines."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from headgate.core import Sample, redacted, secrets_known

if TYPE_CHECKING:
    from headgate.core import events

JsonValue = str | int | float | bool | list["JsonValue"] | dict[str, "JsonValue"] | None

_UNPRINTABLE: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f"  # control characters, which a terminal would execute
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"  # invisible, line-breaking or direction-changing
    "\ud800-\udfff]"  # lone surrogates: not encodable
)
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CACHED_CHARS: Final = 120
_JSON_INT_LIMIT: Final = 2**63
_field_names: dict[type, tuple[str, ...]] = {}
_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


def printable(text: str) -> str:
    """Return `text` on one line, with every character that controls a terminal or viewer escaped."""
    return _UNPRINTABLE.sub(_escaped, text)


def safe_text(text: str, *, limit_chars: int = 2_000) -> str:
    """Return `text` without secrets, printable and cut to about `limit_chars`, safe for any log, page or table."""
    if len(text) > _CACHED_CHARS or len(text) > limit_chars:
        return printable(redacted(text, limit_chars=limit_chars))
    return _safe_short_text(text, secrets_known())


@lru_cache(maxsize=16_384)
def _safe_short_text(text: str, _: int) -> str:
    """Return the same for names and ids, cached: they recur in every event, and masking is most of a line's cost."""
    return printable(redacted(text))


def event_name(kind: type[events.Event] | str) -> str:
    """Return the log name of an event type or of its class name: `QueuePaused` -> `queue_paused`."""
    return _WORD_START.sub("_", kind if isinstance(kind, str) else kind.__name__).lower()


def event_fields(event: events.Event) -> dict[str, JsonValue]:
    """Return the event's fields as JSON values, secrets redacted and strings printable.

    A sample's columns replace the field that holds it, without the conversation, which belongs in the sample store and
    may be megabytes long.
    """
    fields: dict[str, JsonValue] = {}
    for name in _names(type(event)):
        value = getattr(event, name)
        if isinstance(value, Sample):
            fields |= {
                column: json_safe(getattr(value, column)) for column in _names(Sample) if column != "conversation"
            }
        else:
            fields[name] = json_safe(value)
    return fields


def json_safe(value: object) -> Any:
    """Return dataclasses, mappings, sequences and scalars as JSON values: strings printable and free of secrets.

    A number that JSON cannot represent becomes None, or a string if it is an integer.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _JSON_INT_LIMIT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return safe_text(value) if isinstance(value, str) else _json_of_many(value)


def _json_of_many(value: object) -> JsonValue:
    if isinstance(value, Sequence):
        return [json_safe(item) for item in value]
    if isinstance(value, Mapping):
        return {safe_text(str(key)): json_safe(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted((json_safe(item) for item in value), key=repr)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: json_safe(getattr(value, name)) for name in _names(type(value))}
    return safe_text(str(value))


def _names(kind: type) -> tuple[str, ...]:
    names = _field_names.get(kind)
    if names is None:
        names = _field_names[kind] = tuple(field.name for field in dataclasses.fields(kind))
    return names


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def duration(seconds: float) -> str:
    """Return a duration in at most two units: `0s`, `42s`, `3m 20s`, `5h 02m`, `2d 03h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3600:02}h"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return `1 row`, or `2,000 rows`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
