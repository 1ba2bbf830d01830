"""The figures that the seed's authors published, to stand beside ours."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

_FILE: Final = Path(__file__).with_name("published.toml")


@cache
def published() -> Mapping[str, Mapping[str, Any]]:
    """Return the figures by case: shares of capacity, generations per second, seconds."""
    cases: Mapping[str, Mapping[str, Any]] = tomllib.loads(_FILE.read_text("utf-8"))["cases"]
    return cases
