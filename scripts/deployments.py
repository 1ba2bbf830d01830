"""Writes the sampling deployments of `prefect.yaml`: one for each environment that Headgate brings along.

`make reference` runs it; with `--check` it only says whether the file is as it would be written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from headgate.environments import available
from headgate.orchestration import window_deployments

FILE: Final = Path(__file__).parents[1] / "prefect.yaml"
FIRST: Final = "# One window per environment: written by `make reference`.\n"
LAST: Final = "# The end of the windows.\n"


def with_windows(text: str) -> str:
    """Return the text of a deployment file with its windows written anew.

    Raises:
        SystemExit: if an environment cannot be used here, so that its deployment would go missing.
    """
    entries = available()
    for entry in entries:
        if entry.spec is None:
            sys.exit(f"{entry.name}: {entry.problem}")
    before, first, rest = text.partition(FIRST)
    _, last, after = rest.partition(LAST)
    if not first or not last:
        sys.exit(f"{FILE} has lost the lines {FIRST.strip()!r} and {LAST.strip()!r}")
    windows = window_deployments([entry.spec for entry in entries if entry.spec is not None])
    return f"{before}{FIRST}{windows}\n{LAST}{after}"


def main(arguments: list[str]) -> int:
    """Write the file, or check it."""
    text = FILE.read_text(encoding="utf-8")
    written = with_windows(text)
    if "--check" not in arguments:
        FILE.write_text(written, encoding="utf-8")
        return 0
    if text == written:
        return 0
    sys.stderr.write("prefect.yaml does not have one window for each environment: run `make reference`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
