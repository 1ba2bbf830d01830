"""Writes the sampling deployments of `prefect.yaml`: one for each environment that Headgate brings along.

`make reference` runs it; with `--check` it only says whether the file is as it would be written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Final

from slugify import slugify

from headgate.environments import EnvironmentSpec, available

FILE: Final = Path(__file__).parents[1] / "prefect.yaml"
FIRST: Final = "# One window per environment: written by `make reference`.\n"
LAST: Final = "# The end of the windows.\n"


WINDOW_EVERY_S: Final = 600
WINDOW_S: Final = 540
"""A window ends a minute before the next one: time for a worker to start that one, and for this one to drain."""

SEED_ENVIRONMENTS: Final = frozenset(
    {
        "affine:abd",
        "affine:ded",
        "affine:sat",
        "agentgym:alfworld",
        "agentgym:babyai",
        "agentgym:sciworld",
        "agentgym:textcraft",
        "agentgym:webshop",
    }
)
"""Environments whose schedules are on from the start; the others' schedules must be turned on by hand."""

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


def window_deployments(specs: Sequence[EnvironmentSpec]) -> str:
    """Return one entry of `deployments` in `prefect.yaml` for each environment; judged ones are left out.

    The entries use the anchor `*window` of Headgate's own file. Windows whose schedule is on start evenly spread
    over their interval, so that one starts soon after deployment; the others start halfway between two of them.

    Args:
        specs: of the environments.
    """
    sampled = sorted((spec for spec in specs if not spec.needs_judge), key=lambda spec: spec.name)
    begun = list(accumulate(spec.name in SEED_ENVIRONMENTS for spec in sampled))
    apart_s = WINDOW_EVERY_S / max(begun[-1:], default=1)
    return "\n".join(_entry(spec, place, apart_s) for spec, place in zip(sampled, begun, strict=True))


def _entry(spec: EnvironmentSpec, place: int, apart_s: float) -> str:
    is_on = spec.name in SEED_ENVIRONMENTS
    offset = timedelta(seconds=round((place - 1 if is_on else place - 0.5) * apart_s))
    anchor = f"{_EPOCH + offset:%Y-%m-%dT%H:%M:%SZ}"
    note = "" if is_on else " Its schedule is off until somebody turns it on."
    description = f"Sample every model in {spec.name}, a window every ten minutes: {spec.summary}.{note}"
    return (
        "- <<: *window\n"
        f"  name: {slugify(spec.name)}\n"
        f"  description: {json.dumps(description, ensure_ascii=False)}\n"
        f'  tags: [headgate, sampling, "{spec.name}"]\n'
        f'  parameters: {{environment: "{spec.name}", duration_s: {WINDOW_S}}}\n'
        "  schedules:\n"
        f'  - {{slug: windows, interval: {WINDOW_EVERY_S}, anchor_date: "{anchor}", timezone: UTC'
        f"{'' if is_on else ', active: false'}}}\n"
    )


def with_windows(text: str) -> str:
    """Return the text of a deployment file with its windows written anew.

    Raises:
        SystemExit: if an environment cannot be used here, so that its deployment would go missing.
    """
    entries = available()
    for entry in entries:
        if entry.spec is None:
            sys.exit(f"{entry.name}: {entry.problem}")
    before, first, rest = text.partition(FIRST)
    _, last, after = rest.partition(LAST)
    if not first or not last:
        sys.exit(f"{FILE} has lost the lines {FIRST.strip()!r} and {LAST.strip()!r}")
    windows = window_deployments([entry.spec for entry in entries if entry.spec is not None])
    return f"{before}{FIRST}{windows}\n{LAST}{after}"


def main(arguments: list[str]) -> int:
    """Write the file, or check it."""
    text = FILE.read_text(encoding="utf-8")
    written = with_windows(text)
    if "--check" not in arguments:
        FILE.write_text(written, encoding="utf-8")
        return 0
    if text == written:
        return 0
    sys.stderr.write("prefect.yaml does not have one window for each environment: run `make reference`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
