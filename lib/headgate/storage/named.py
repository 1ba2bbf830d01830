"""Names that somebody wrote, compared with those that a store has samples of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from headgate.core import errors

_LISTED: Final = 10
"""Names that an error lists at most."""


def require_named(what: str, names: Iterable[str], known: set[str]) -> None:
    """Return when the store has samples of all names.

    Args:
        what: `model`, `environment` or `campaign`.
        names: that somebody wrote.
        known: that the store has.

    Raises:
        InvalidInputError: naming the first that it has not, the nearest one that it has, and some of them.
    """
    for name in sorted(set(names) - known):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        listed = ", ".join(sorted(known)[:_LISTED]) or "none at all"
        raise errors.InvalidInputError(
            f"the store has no sample of {what} {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            next_step=f"It has samples of the {what}s: {listed}; `headgate summary` shows all that it has.",
        )
