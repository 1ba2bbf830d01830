"""Limits per minute that a provider states in its answers: in headers, and in the text of a refusal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from headgate.core.rates import RATE_UNITS, RateNote

_UNITS: Final = {name.replace("_", "-"): unit for unit, name in enumerate(RATE_UNITS)}
_TOLD: Final = ("limit", "remaining", "reset")

_FORMS: Final = ("x-ratelimit-{told}-{unit}", "anthropic-ratelimit-{unit}-{told}")
"""Header names of OpenAI and compatible providers, and of Anthropic."""

_LEVEL: Final = re.compile(r"x-ratelimit-([a-z_]{1,40})-(?:limit|remaining)-", re.IGNORECASE)
"""LiteLLM's proxy also names the level of the limit: `x-ratelimit-api_key-remaining-tokens`."""


def _names(form: str) -> tuple[tuple[int, tuple[str, ...]], ...]:
    return tuple((unit, tuple(form.format(unit=name, told=told) for told in _TOLD)) for name, unit in _UNITS.items())


_NAMES: Final = tuple(names for form in _FORMS for names in _names(form))

_MOST: Final = 1e12
"""A larger number is not a limit, and could break arithmetic."""

_SHOWN_CHARS: Final = 2_000
"""Characters of a refusal that are read."""

_LONGEST_S: Final = 3600.0

_NUMBER: Final = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_DURATION: Final = re.compile(r"(?:(\d{1,6}(?:\.\d{1,9})?)(ms|h|m|s))", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

_REFUSED_FOR: Final = re.compile(
    r"\b(requests|(?:input |output )?tokens) per min(?:ute)?\b|\blimit type: ?(requests|(?:input_|output_)?tokens)\b",
    re.IGNORECASE,
)
_OF_LIMIT: Final = re.compile(r"\blimit(?: of|:)? ([\d,]{1,18})\b", re.IGNORECASE)


def rate_notes(headers: Mapping[str, str], now: float) -> tuple[RateNote, ...]:
    """Return the limits per minute in headers, one note per unit; where they contradict each other, the smaller.

    A value that cannot be read or cannot be true is ignored: a limit below 1 or above any provider's. A negative
    remainder counts as 0, one above the limit as the limit.

    Args:
        headers: headers of the answer, looked up case-insensitively.
        now: wall time in seconds since the epoch.
    """
    notes: dict[int, RateNote] = {}
    if not any("ratelimit-" in name.lower() for name in headers):
        return ()
    levels = {found[1].lower() for name in headers if (found := _LEVEL.match(name))}
    others = [names for level in sorted(levels) for names in _names(f"x-ratelimit-{level}-{{told}}-{{unit}}")]
    for unit, names in (*_NAMES, *others):
        limit_name, remaining_name, reset_name = names
        limit, remaining = _number(headers.get(limit_name)), _number(headers.get(remaining_name))
        if limit is None and remaining is None:
            continue
        if limit is not None and not 1 <= limit <= _MOST:
            limit = None
        if remaining is not None:
            remaining = min(max(remaining, 0.0), _MOST if limit is None else limit)
        note = RateNote(unit, limit, remaining, _reset_s(headers.get(reset_name), now))
        notes[unit] = note if unit not in notes else _smaller(notes[unit], note)
    return tuple(notes.values())


def refusal_notes(said: str, notes: tuple[RateNote, ...]) -> tuple[RateNote, ...]:
    """Return the limits in a refusal (429): those of its headers, and the unit and limit that its text names."""
    said = said[:_SHOWN_CHARS]
    found = _REFUSED_FOR.search(said)
    if found is None:
        return notes
    unit = _UNITS[(found[1] or found[2]).lower().replace(" ", "-").replace("_", "-")]
    stated = _OF_LIMIT.search(said)
    limit = _number(stated[1].replace(",", "")) if stated is not None else None
    named = RateNote(unit, limit if limit is not None and 1 <= limit <= _MOST else None, 0.0)
    for note in notes:
        if note.unit == unit:
            named = _smaller(named, note)
    return (*(note for note in notes if note.unit != unit), named)


def lasting(notes: tuple[RateNote, ...]) -> tuple[RateNote, ...]:
    """Return what still applies of earlier notes: the limits, but not what remained then."""
    return tuple(note._replace(remaining=None, reset_s=None) for note in notes if note.limit is not None)


def _smaller(one: RateNote, other: RateNote) -> RateNote:
    both = zip(one[1:], other[1:], strict=True)
    return RateNote(one.unit, *(min((value for value in two if value is not None), default=None) for two in both))


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and _NUMBER.fullmatch(text.strip()) else None


def _reset_s(text: str | None, now: float) -> float | None:
    """Return the seconds until a limit has room, from `6m0s`, `120ms`, plain seconds, or a time (RFC 3339)."""
    if text is None:
        return None
    seconds = _number(text)
    if seconds is None:
        parts = [float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text)]
        seconds = sum(parts) if _DURATION.sub("", text.strip()) == "" else _moment(text, now)
    return None if seconds is None or not 0 <= seconds <= _LONGEST_S else seconds


def _moment(text: str, now: float) -> float | None:
    try:
        moment = datetime.fromisoformat(text.strip())
        return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError):
        return None
