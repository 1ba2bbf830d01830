"""What the openings of tasks look like, as digests: `golden.json` holds those that never change.

The file has, for each environment, indices of tasks with the SHA-256 of their opening messages. A new environment is
added by `python -m tests.environments.golden_openings NAME` in the repository's root, which writes the digests of the
named environments anew and leaves all others as they are. Where those of a released environment change, results under
its name are no longer comparable: give it another name, or its tasks another version.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from headgate.core import seed_of
from headgate.environments import environment

GOLDEN_FILE = Path(__file__).with_name("golden.json")


def golden() -> dict[str, dict[str, str]]:
    """Return the digests of `golden.json`: by environment, by index."""
    found: dict[str, dict[str, str]] = json.loads(GOLDEN_FILE.read_text(encoding="utf-8"))
    return found


async def openings(name: str) -> dict[str, str]:
    """Return the digests of the first, the second, the thousandth and the last task of an environment, by index."""
    last = environment(name).spec.data_length - 1
    indices = sorted({0, min(1, last), min(999, last), last})
    return {str(index): await _digest(name, index) for index in indices}


async def all_openings(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the digests of several environments, by name."""
    return {name: await openings(name) for name in names}


async def _digest(name: str, index: int) -> str:
    episode = await environment(name).open(index, seed_of(name, index))
    said = [[message.role, message.content] for message in episode.opening]
    await episode.close()
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def main(arguments: Sequence[str]) -> None:
    """Print digests (`--print NAME…`), or write them to `golden.json` (`NAME…`)."""
    if arguments[0] == "--print":
        sys.stdout.write(json.dumps(asyncio.run(all_openings(arguments[1:]))))
        return
    kept = golden() if GOLDEN_FILE.exists() else {}
    kept |= asyncio.run(all_openings(arguments))
    GOLDEN_FILE.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
