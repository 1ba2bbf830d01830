"""The ids by which an engine knows its requests, made so that aborting one aborts no other."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_REMEMBERED: Final = 4096
"""An engine notices a closed connection soon; a pool sends far fewer requests to one worker in that time."""


class RequestIds:
    """Gives each request that is sent to one engine an id of its own: the request's, where that can be.

    SGLang refuses an id that it still has, so a request that comes back to the same engine needs another one. And it
    aborts every request whose id begins with the one that it is told, so no id may begin with another one.
    """

    def __init__(self) -> None:
        self._in_flight: dict[str, str] = {}
        self._lengths: Counter[int] = Counter()
        """Of the ids in flight: most pools make ids of one length, of which none begins with another one."""
        self._sent: dict[str, None] = {}
        self._serial = itertools.count(1)

    @contextmanager
    def use(self, request_id: str) -> Iterator[str]:
        """Give the id under which a request goes to the engine, while it is there."""
        used = self._free_id(request_id)
        self._sent[used] = None
        if len(self._sent) > _REMEMBERED:
            del self._sent[next(iter(self._sent))]
        self._in_flight[request_id] = used
        self._lengths[len(used)] += 1
        try:
            yield used
        finally:
            self._lengths[len(used)] -= 1
            if not self._lengths[len(used)]:
                del self._lengths[len(used)]
            if self._in_flight.get(request_id) == used:
                del self._in_flight[request_id]

    def of(self, request_id: str) -> str | None:
        """Return the id under which a request is with the engine; None where it is not."""
        return self._in_flight.get(request_id)

    def _free_id(self, request_id: str) -> str:
        if request_id not in self._sent and not self._is_beside_a_beginning(request_id):
            return request_id
        return f"~{next(self._serial)}~{request_id}"

    def _is_beside_a_beginning(self, request_id: str) -> bool:
        """Return whether it is the beginning of an id in flight, or one of them is its beginning."""
        if self._lengths.keys() <= {len(request_id)}:
            return False  # the same id would be among those that were sent
        others = self._in_flight.values()
        return any(other.startswith(request_id) or request_id.startswith(other) for other in others)
