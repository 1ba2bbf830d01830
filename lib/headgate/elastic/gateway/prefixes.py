"""Hashes of how a prompt begins: requests that share them share an engine's cache, if they go to the same engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from zlib import crc32

BLOCK_BYTES: Final = 512
"""About 128 tokens: what is shared below that is computed again sooner than it is looked up."""

MOST_BLOCKS: Final = 16
"""Of 8 KiB together: longer prompts that are equal so far rarely differ in where they were computed before."""


def prefixes_of(pieces: Iterable[str]) -> tuple[int, ...]:
    """Return one rolling hash for each whole block that a text begins with, the shortest beginning first.

    Two texts have as many hashes in common as they have equal blocks at their beginning. Costs nothing beyond the
    first 8 KiB. A collision sends a request to another worker than it might have gone to, and nothing else.

    Args:
        pieces: of the text, in order; where one ends counts, too.
    """
    beginning = bytearray()
    for piece in pieces:
        beginning += piece[: BLOCK_BYTES * MOST_BLOCKS].encode("utf-8", "surrogatepass")
        beginning.append(0)
        if len(beginning) >= BLOCK_BYTES * MOST_BLOCKS:
            break
    if len(beginning) < BLOCK_BYTES:
        return ()
    view = memoryview(beginning)
    found: list[int] = []
    rolled = 0
    for end in range(BLOCK_BYTES, min(len(beginning), BLOCK_BYTES * MOST_BLOCKS) + 1, BLOCK_BYTES):
        rolled = crc32(view[end - BLOCK_BYTES : end], rolled)
        found.append(rolled)
    return tuple(found)
