"""Keys of artifacts: Prefect takes lowercase letters, digits and dashes only."""

from __future__ import annotations

import re
from typing import Final

_OTHER: Final = re.compile(r"[^a-z0-9]+")


def artifact_key(*parts: str) -> str:
    """Return the key that the parts make, e.g. `scores-affine-sat`.

    Raises:
        ValueError: if no letter or digit is left of them.
    """
    key = "-".join(filter(None, (_OTHER.sub("-", part.lower()).strip("-") for part in parts)))
    if not key:
        raise ValueError(f"an artifact key needs a letter or a digit (got {parts!r})")
    return key
