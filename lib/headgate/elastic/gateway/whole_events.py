"""Server-sent events passed through whole, so that a stream which breaks can still say so."""

from __future__ import annotations

from typing import Final

MOST_HELD_BYTES: Final = 1024 * 1024
"""An event that is longer than this is passed on in parts."""


class WholeEvents:
    """Cuts chunks of a stream where events end. Nearly always a chunk is whole events, and passed on as it is."""

    def __init__(self) -> None:
        self._held = b""

    def cut(self, chunk: bytes) -> bytes:
        """Return what may be passed on: everything up to the end of the last whole event."""
        if not self._held and chunk.endswith(b"\n\n"):
            return chunk
        joined = self._held + chunk
        end = max(joined.rfind(b"\n\n") + 2 if b"\n\n" in joined else 0, _crlf_end(joined))
        if not end and len(joined) > MOST_HELD_BYTES:
            end = len(joined)
        self._held = joined[end:]
        return joined[:end]

    def rest(self) -> bytes:
        """Return what is left at the end of a stream that did not break."""
        rest, self._held = self._held, b""
        return rest


def _crlf_end(joined: bytes) -> int:
    found = joined.rfind(b"\r\n\r\n")
    return found + 4 if found >= 0 else 0
