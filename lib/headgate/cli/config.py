"""`headgate config check|show`: the settings, and whether a campaign could start with them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate import orchestration, sampling
from headgate import run as runs
from headgate.cli.options import Choices
from headgate.cli.output import AsJson, counted, print_json, print_table, tell


def show(choices: Choices | None = None, *, as_json: AsJson = False) -> int:
    """Show every setting with its value and where it came from; secrets are masked."""
    rows = (choices or Choices()).load().rows()
    if as_json:
        print_json({name: {"value": value, "from": origin} for name, value, origin in rows})
    else:
        print_table(f"{len(rows)} settings", ("setting", "value", "from"), rows)
    return 0


def check(
    choices: Choices | None = None,
    *,
    deployments: Annotated[Path | None, Parameter(help="Also check a prefect.yaml, unknown keys included.")] = None,
    as_json: AsJson = False,
) -> int:
    """Check settings, roster, environments and rates without running anything."""
    settings = (choices or Choices()).load().settings
    environments = runs.sampled_environments(settings)
    rates = runs.rates_of(settings, environments)
    models = asyncio.run(sampling.roster_source(settings.roster).load()).models
    names = orchestration.checked_deployments(deployments) if deployments is not None else ()
    lines = [f"settings are sound: {counted(len(models), 'model')}, {counted(len(environments), 'environment')}"]
    lines += [f"  {name}: {rate:g} samples per model and day" for name, rate in rates.items()]
    lines += [f"{deployments}: {counted(len(names), 'deployment')}"] if deployments is not None else []
    document = {"models": len(models), "rates": rates, "deployments": names}
    return tell(document, *lines, as_json=as_json)
