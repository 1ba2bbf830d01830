"""Which kind of error the text of another program's error speaks of."""

from __future__ import annotations

import re
from typing import Final

from headgate.core import ErrorKind

_KINDS: Final[tuple[tuple[re.Pattern[str], ErrorKind], ...]] = (
    (
        re.compile(r"(?i)\b(429|402)\b|maximum capacity|try again later|zero balance|rate.?limit"),
        ErrorKind.RATE_LIMITED,
    ),
    (re.compile(r"(?i)\b(401|403)\b|invalid api key|api_key"), ErrorKind.AUTH),
    (re.compile(r"(?i)\b400\b|bad request"), ErrorKind.BAD_REQUEST),
    (re.compile(r"(?i)time.?out|timed out|\b504\b"), ErrorKind.PROVIDER_TIMEOUT),
    (re.compile(r"(?i)\b5\d\d\b|no instances available"), ErrorKind.PROVIDER_FAILURE),
    (re.compile(r"(?i)connect|refused|unreachable"), ErrorKind.CONNECTION),
)
"""What error texts say, after the list of service errors of seed 000; anything else was the environment's."""


def kind_of_error(error: object) -> ErrorKind:
    """Return the kind of error that the text speaks of: a provider's, or else the environment's."""
    text = str(error)
    return next((kind for pattern, kind in _KINDS if pattern.search(text)), ErrorKind.ENVIRONMENT)
