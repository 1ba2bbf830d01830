"""The chunks of a spool that are still in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from headgate.core import Sample

_MOST_BYTES: Final = 32_000_000
"""As written. The usual batch is smaller and need not be read back and parsed; a spool of days does not fill memory."""


class RecentChunks:
    """Keeps the latest chunks of samples up to a size; the oldest go first. Owned by a spool."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[int, tuple[Sequence[Sample], int]] = OrderedDict()
        self._bytes = 0

    def add(self, position: int, samples: Sequence[Sample], size: int) -> None:
        """Keep a chunk that takes `size` bytes on disk, in place of one that was at its position before."""
        self.take(position)
        self._chunks[position] = samples, size
        self._bytes += size
        while self._bytes > _MOST_BYTES:
            _, (_, gone) = self._chunks.popitem(last=False)
            self._bytes -= gone

    def take(self, position: int) -> Sequence[Sample] | None:
        """Return a chunk, and keep it no longer; None when it is not here."""
        samples, size = self._chunks.pop(position, (None, 0))
        self._bytes -= size
        return samples
