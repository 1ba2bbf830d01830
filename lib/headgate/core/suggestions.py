"""Which known name somebody meant who wrote an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_name(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like `name`; None where none is like it (`cutoff` as difflib's)."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return the end of a message on an unknown name: a question for the nearest known one, or `otherwise`."""
    near = nearest_name(name, known, cutoff)
    return f"; did you mean {near!r}?" if near else otherwise
