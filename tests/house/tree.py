"""The tracked files, as the tests of the house read them."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return the files that git tracks and that are in the checkout."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    paths = (ROOT / name for name in listing.split("\0") if name)
    return tuple(path for path in paths if path.is_file() and not path.is_symlink())


@cache
def text_of(path: Path) -> str | None:
    """Return the text of a file; None when it is binary."""
    content = path.read_bytes()
    return None if b"\0" in content[:8_000] else content.decode("utf-8", errors="replace")


def python_files(*folders: str) -> list[Path]:
    """Return the tracked Python files below `folders`, all of them without any."""
    roots = [ROOT / folder for folder in folders] or [ROOT]
    return [p for p in tracked_files() if p.suffix == ".py" and any(p.is_relative_to(root) for root in roots)]


def lines_matching(pattern: str, paths: list[Path]) -> list[str]:
    """Return `file:line: text` for every line that `pattern` is found in."""
    import re

    found = []
    expression = re.compile(pattern)
    for path in paths:
        text = text_of(path) or ""
        if expression.search(text):
            rows = enumerate(text.splitlines(), start=1)
            found += [f"{path.relative_to(ROOT)}:{n}: {line[:120]}" for n, line in rows if expression.search(line)]
    return found
