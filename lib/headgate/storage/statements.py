"""The SQL of the journal, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources


@cache
def statements() -> Mapping[str, str]:
    """Return the statements of `journal.sql` by their names."""
    text = resources.files(__package__).joinpath("journal.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))
