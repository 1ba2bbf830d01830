"""What commands import: who asks a small question does not wait for what another command needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.cli.commands import all_commands

HEAVY = ("matplotlib", "pandas", "pandera", "prefect", "ray", "s3fs", "scipy", "gymnasium", "inspect_ai")
"""Each takes from a third of a second to several."""

SMALL = {
    ("headgate.cli.why", "headgate.cli.models"): ("headgate.run", "headgate.admission", "polars", "duckdb", "aiohttp"),
    tuple(f"headgate.cli.{n}" for n in ("run", "judge", "arena", "plan", "doctor", "corrections", "environments")): (
        "headgate.run.assembly",
        *("polars", "duckdb", "numpy", "fsspec", "aiohttp"),
    ),
    ("headgate.cli.main", "headgate.cli.config", "headgate.cli.data", "headgate.cli.leaderboard"): (
        "headgate.run.assembly",
        *("polars", "duckdb", "numpy", "fsspec", "aiohttp", "httpx"),
    ),
    ("headgate.cli.elastic.status_table",): ("headgate.run", "polars", "aiohttp"),
    ("headgate.cli.jobqueue.work", "headgate.cli.jobqueue.jobs"): (
        "polars",
        "duckdb",
        "aiohttp",
        "numpy",
        "yaml",
        "fastapi",
    ),
}
"""Modules of commands, and what they leave to others beside that."""

USES = [
    ["plan", "--roster", "baselines", "--environment", "affine:sat"],
    ["query", "select count(*) from samples", "--store", "samples"],
    ["summary", "--store", "samples"],
    ["config", "show"],
    ["config", "check", "--roster", "baselines"],
    ["models", "--roster", "baselines"],
    ["environments"],
    ["export", "out.jsonl", "--store", "samples"],
]
"""Commands that neither draw nor store anything, nor use Prefect or Ray."""


def _imported(code: str, folder: Path) -> set[str]:
    """Return the modules that a fresh interpreter holds after running `code`."""
    code += "\nimport sys; print('MODULES', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("MODULES")[2].split())


def test_no_command_waits_for_figures_checks_prefect_or_ray_to_say_its_options(tmp_path: Path) -> None:
    places = sorted(
        {place.partition(":")[0] for name, (place, _) in all_commands().items() if not name.startswith("limits")}
    )
    code = "\n".join(f"import {place}" for place in places)
    assert _imported(code, tmp_path).isdisjoint(HEAVY)


@pytest.mark.parametrize("modules", SMALL, ids=lambda modules: modules[0].rpartition(".")[2])
def test_commands_that_ask_little_import_little(modules: tuple[str, ...], tmp_path: Path) -> None:
    assert _imported(f"import {', '.join(modules)}", tmp_path).isdisjoint((*HEAVY, *SMALL[modules]))


def test_lists_of_commands_are_drawn_without_markdown_and_without_the_events(tmp_path: Path) -> None:
    code = "from headgate.cli import main\nmain(['--help']); main(['jobqueue', '--help'])"
    kept_out = {
        "headgate_replay.elastic",
        "rich.markdown",
        "markdown_it",
        "pydantic",
        "httpx",
        "headgate.core.events",
        "headgate.config",
    }
    assert _imported(code, tmp_path).isdisjoint((*HEAVY, *kept_out))


def test_commands_that_only_read_import_neither_figures_nor_checks_nor_the_engine(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    code = "from headgate.cli import main\n" + "\n".join(f"main({words!r})" for words in USES)
    assert _imported(code, tmp_path).isdisjoint((*HEAVY, "headgate.run.assembly", "headgate.run.run", "aiohttp"))
