"""`headgate models`: whom there is to sample."""

from __future__ import annotations

import asyncio

from headgate.cli.options import RosterChoices
from headgate.cli.output import AsJson, counted, print_json, print_table
from headgate.sampling import roster_source


def models(choices: RosterChoices | None = None, *, as_json: AsJson = False) -> int:
    """Check the roster and list its models. Keys are never shown."""
    settings = (choices or RosterChoices()).load().settings
    roster = asyncio.run(roster_source(settings.roster).load())
    rows = [
        (m.uid, m.name, m.revision, m.request_name, m.endpoint, "yes" if m.api_key else "no", m.weight, m.max_parallel)
        for m in roster.models
    ]
    columns = ("uid", "name", "revision", "served as", "endpoint", "has key", "weight", "parallel")
    if as_json:
        print_json([dict(zip((c.replace(" ", "_") for c in columns), row, strict=True)) for row in rows])
    else:
        print_table(counted(len(rows), "model"), columns, rows, right=(0, 6, 7))
    return 0
