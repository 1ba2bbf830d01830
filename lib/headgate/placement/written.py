"""Amounts of resources as people write them: `{cpu: 2, gpu: 1, memory: 2 GiB}`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from headgate.placement.amounts import CPU, GPU, MEMORY, MILLI, Amounts, amounts
from headgate.placement.errors import InvalidPlacementError

_MEMORY_TEXT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?", re.IGNORECASE)
_MEMORY_UNITS: Final = {"": 1} | {
    f"{prefix}{binary}": (1_024 if binary else 1_000) ** power
    for power, prefix in enumerate("kmgt", start=1)
    for binary in ("", "i")
}
AMOUNT_KEYS: Final = ("cpu", "gpu", "memory", "custom")


def memory_bytes(written: object) -> int:
    """Return bytes of memory as written: a number of bytes, or text such as `2 GiB`, `512MB`.

    Raises:
        InvalidPlacementError: it is neither, or not whole bytes.
    """
    match = _MEMORY_TEXT.fullmatch(written.strip()) if isinstance(written, str) else None
    if match:
        number = float(match[1]) * _MEMORY_UNITS[(match[2] or "").lower()]
        if number.is_integer():
            return int(number)
    elif isinstance(written, int) and not isinstance(written, bool) and written >= 0:
        return written
    raise InvalidPlacementError(f"memory must be whole bytes >= 0 or text such as '2 GiB' (got {written!r})")


def written_amounts(written: object) -> Amounts:
    """Return amounts of `{cpu: 2, gpu: 1, memory: 2 GiB, custom: {licence: 1}}`, or given `Amounts` as they are.

    Raises:
        InvalidPlacementError: a resource is unknown or its number impossible, or nothing is asked for.
    """
    if isinstance(written, Amounts):
        found = written
    elif isinstance(written, Mapping):
        found = _amounts_of(written)
    else:
        raise InvalidPlacementError(f"Resources must be a mapping such as {{cpu: 2, gpu: 1}} (got {written!r})")
    if not found:
        raise InvalidPlacementError("Resources must be more than nothing (got none)")
    if negative := [name for name, units in found.units if units < 0]:
        raise InvalidPlacementError(f"An amount of {negative[0]} must be a number >= 0 (got {found.get(negative[0])})")
    return found


def _amounts_of(written: Mapping[Any, Any]) -> Amounts:
    for key in written:
        if key not in AMOUNT_KEYS:
            nearest = difflib.get_close_matches(str(key).lower().removeprefix("num_"), AMOUNT_KEYS, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else "name others under custom"
            raise InvalidPlacementError(f"Resources are {', '.join(AMOUNT_KEYS)} (got {key!r}); {hint}")
    custom = written.get("custom", {})
    if not isinstance(custom, Mapping):
        raise InvalidPlacementError(f"custom must map names of resources to amounts (got {custom!r})")
    if taken := {CPU, GPU, MEMORY} & custom.keys():
        raise InvalidPlacementError(f"custom must not name {min(taken)!r}; write it beside custom")
    return amounts(
        cpu=_number("cpu", written.get("cpu", 0)),
        gpu=_number("gpu", written.get("gpu", 0)),
        memory_bytes=memory_bytes(written.get("memory", 0)),
        custom={str(name): _number(str(name), amount) for name, amount in custom.items()},
    )


def _number(name: str, written: object) -> float:
    if isinstance(written, bool) or not isinstance(written, int | float):
        raise InvalidPlacementError(f"An amount of {name} must be a number >= 0 (got {written!r})")
    return written


def _read_amounts(written: object) -> Amounts:
    # Pydantic adds where the value stands to a ValueError, and to nothing else.
    try:
        return written_amounts(written)
    except InvalidPlacementError as error:
        raise ValueError(error.message) from None


def _written(found: Amounts) -> dict[str, Any]:
    """Return amounts as `written_amounts` reads them."""
    plain = {
        "cpu": found.get(CPU) / MILLI,
        "gpu": found.get(GPU) / MILLI,
        "memory": found.get(MEMORY),
        "custom": {name: units / MILLI for name, units in found.units if name not in {CPU, GPU, MEMORY}},
    }
    return {key: number for key, number in plain.items() if number}


WrittenAmounts = Annotated[
    Amounts,
    BeforeValidator(_read_amounts),
    PlainSerializer(_written),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "cpu": {"type": "number", "minimum": 0},
                "gpu": {"type": "number", "minimum": 0},
                "memory": {"type": ["integer", "string"], "description": "bytes, or text such as 2 GiB"},
                "custom": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}},
            },
            "additionalProperties": False,
        }
    ),
]
