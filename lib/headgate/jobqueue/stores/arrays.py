"""Columns of rows as PostgreSQL's array literals, made without a step per value.

A driver's own array dumper takes a microsecond per value and more: ten thousand jobs a second
are half a million values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.jobqueue.stores.rows import Row


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return one array literal for each column; texts must be storable (no NUL)."""
    return [_literal(column) for column in zip(*rows, strict=True)]


def _literal(column: tuple[Any, ...]) -> str:
    if isinstance(column[0], str):
        return texts(column)
    return "{" + ",".join(map(repr, column)) + "}"


def texts(values: Sequence[str]) -> str:
    """Return an array literal of texts, which must be storable.

    Joined by NUL, which none of them holds, they are escaped as one text.
    """
    if not values:
        return "{}"
    escaped = "\0".join(values).replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + escaped.replace("\0", '","') + '"}'
