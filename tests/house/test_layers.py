"""The layers of the design, as import-linter checks them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.house.tree import ROOT


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_imports_run_downward_only() -> None:
    result = _lint(ROOT)
    assert result.returncode == 0, result.stdout[-4_000:] + result.stderr[-2_000:]


def test_every_room_has_its_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(c for c in contracts if c["type"] == "layers")["layers"]
    named = {room.strip() for layer in layers for room in layer.split("|")}
    rooms = {f"headgate.{p.parent.name}" for p in (ROOT / "lib/headgate").glob("*/__init__.py")}
    assert rooms == named
