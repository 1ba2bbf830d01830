"""`headgate audit`: who changed what, and when."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.output import AsJson, counted, print_json, print_table
from headgate.core import moment_of
from headgate.core.audit import audit_entries, audit_file
from headgate.core.errors import InvalidInputError


def audit(
    *,
    since: Annotated[str | None, Parameter(help="Only changes since: a date, a time, or how long ago (36h).")] = None,
    who: Annotated[str, Parameter(help="Only changes by a user or token whose name contains this text.")] = "",
    what: Annotated[
        str, Parameter(help="Only changes that contain this text in the action or in the thing changed.")
    ] = "",
    limit: Annotated[int, Parameter(help="How many changes to show, counted from the latest.")] = 100,
    as_json: AsJson = False,
) -> int:
    """Show who changed what on this machine, newest last: tokens, jobs, servers, limits, pools, samples.

    The file is .headgate/audit.jsonl in the folder where the changing process ran, or HEADGATE_AUDIT_FILE.
    """
    if limit < 1:
        raise InvalidInputError(f"--limit must be >= 1 (got {limit})")
    start = 0.0 if since is None else moment_of(since, time.time(), option="--since")
    try:
        found = [
            one
            for one in audit_entries()
            if who in one.who
            and what in f"{one.what} {one.thing}"
            and datetime.fromisoformat(one.at).timestamp() >= start
        ][-limit:]
    except OSError as error:
        raise InvalidInputError(f"{audit_file()} cannot be read: {error.strerror}") from None
    if as_json:
        print_json(found)
    else:
        rows = [(one.at, one.who, one.what, one.thing, one.before, one.after) for one in found]
        columns = ("at", "who", "what", "thing", "from", "to")
        print_table(f"{counted(len(found), 'change')} in {audit_file()}", columns, rows)
    return 0
