"""The page of a pool: its workers, demand and queue, kept up to date by the page itself."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final

from headgate.elastic.gateway.status import GatewayStatus


def page_html(status: GatewayStatus) -> bytes:
    """Return the page, which needs no other file: it shows a status, and asks the control API for what comes after."""
    before, after = _halves()
    return before + status.as_json().replace(b"<", rb"\u003c") + after


@cache
def _halves() -> tuple[bytes, bytes]:
    page = _text("page.html").replace("{{ style }}", _text("page.css")).replace("{{ script }}", _text("page.js"))
    before, _, after = page.encode().partition(b"{{ status }}")
    return before, after


def _source(name: str) -> str:
    """Return what a content security policy calls an inline text by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(_text(name).encode()).digest()).decode()}'"


@cache
def _text(name: str) -> str:
    return resources.files("headgate.elastic.gateway").joinpath("templates").joinpath(name).read_text(encoding="utf-8")


PAGE_HEADERS: Final = MappingProxyType(
    {
        "Content-Type": "text/html; charset=utf-8",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": (
            f"default-src 'none'; style-src {_source('page.css')}; script-src {_source('page.js')}; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    }
)
"""Its own style and script, nothing else, and no page around it."""
