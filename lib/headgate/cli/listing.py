"""`headgate models` and `headgate environments`: what there is to sample."""

from __future__ import annotations

import asyncio

from headgate.cli.choices import Choices
from headgate.cli.output import AsJson, print_json, print_table
from headgate.environments import registry_with, served_environments
from headgate.sampling import roster_source


def models(choices: Choices | None = None, *, as_json: AsJson = False) -> int:
    """Check the roster and list its models. Keys are never shown."""
    settings = (choices or Choices()).load().settings
    roster = asyncio.run(roster_source(settings.roster).load())
    rows = [
        (m.uid, m.name, m.revision, m.request_name, m.base_url, "yes" if m.api_key else "no", m.weight, m.max_parallel)
        for m in roster.models
    ]
    columns = ("uid", "name", "revision", "served as", "endpoint", "has key", "weight", "parallel")
    if as_json:
        print_json([dict(zip((c.replace(" ", "_") for c in columns), row, strict=True)) for row in rows])
    else:
        print_table(f"{len(rows)} models", columns, rows, right=(0, 6, 7))
    return 0


def environments(choices: Choices | None = None, *, as_json: AsJson = False) -> int:
    """List the environments that are installed or served, with rate, size, licence and chance level."""
    entries = registry_with(served_environments((choices or Choices()).load().settings)).available()
    if as_json:
        print_json([
            {
                "name": e.name,
                "problem": e.problem,
                "daily_rate": e.spec.daily_rate if e.spec else None,
                "data_length": e.spec.data_length if e.spec else None,
                "max_rounds": e.spec.max_rounds if e.spec else None,
                "chance_score": e.spec.chance_score if e.spec else None,
                "licence": e.spec.licence if e.spec else None,
                "summary": e.spec.summary if e.spec else None,
            }
            for e in entries
        ])  # fmt: skip
        return 0
    rows = [
        (
            e.name,
            e.spec.daily_rate,
            e.spec.data_length,
            e.spec.max_rounds,
            e.spec.chance_score,
            e.spec.licence,
            e.spec.summary,
        )
        if e.spec
        else (e.name, None, None, None, None, None, e.problem)
        for e in entries
    ]
    columns = ("environment", "per day", "tasks", "rounds", "chance", "licence", "what it asks")
    print_table(f"{len(rows)} environments", columns, rows, right=(1, 2, 3, 4))
    return 0
