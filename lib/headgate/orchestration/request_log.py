"""The requests that a Prefect server was asked, read from its own log."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

_LINE: Final = re.compile(r'uvicorn\.access - \S+ - "(?P<call>[A-Z]+ /api/[^ ?"]*)')
_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_NO_CALLS: Final = ("GET /api/health",)


class RequestLog:
    """Counts the API calls of a `private_server(…, log_requests=True)` since the last reading."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "server.log"
        self._read = self._log.stat().st_size

    def calls(self) -> Counter[str]:
        """Return the calls since the last reading, by method and route; every id in a route is `{id}`."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
            self._read += len(text)
        found = (_ID.sub("{id}", match["call"]) for match in _LINE.finditer(text.decode(errors="replace")))
        return Counter(call for call in found if call not in _NO_CALLS)
