"""A small base: workers of the job queue run on it alone, and who lacks an extra is told which one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headgate.jobqueue.server import ServerSettings, running_server
from tests.house.tree import ROOT

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

WITHOUT: Final = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def _run(code: str, absent: set[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter that does not find the packages `absent`."""
    command = [sys.executable, "-c", WITHOUT.format(absent=absent) + code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def _main(words: list[str]) -> str:
    return f"from headgate.cli import main\nsys.exit(main({words!r}))"


def _not_in_the_base() -> set[str]:
    """Return what is installed and not brought by the base requirements, as it is imported."""
    base: set[str] = set()
    waiting = [Requirement(line) for line in PROJECT["dependencies"]]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in base or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        base.add(name)
        waiting += [Requirement(line) for line in metadata.requires(name) or ()]
    packages = metadata.packages_distributions()
    others = {package for package, owners in packages.items() if base.isdisjoint(map(canonicalize_name, owners))}
    return others - {"headgate", "_headgate"} - set(sys.stdlib_module_names)


def test_the_base_is_six_packages_and_none_of_them_holds_data() -> None:
    assert len(PROJECT["dependencies"]) <= 6
    assert {"polars", "duckdb", "numpy", "pandas", "matplotlib", "prefect", "fastapi", "ray"} <= _not_in_the_base()


def test_one_extra_brings_all_but_the_local_model() -> None:
    extras = PROJECT["optional-dependencies"]
    (line,) = extras["all"]
    assert Requirement(line).extras == set(extras) - {"all", "model"}


def test_the_worker_kit_needs_the_base_alone(tmp_path: Path) -> None:
    code = (
        "import headgate.jobqueue.worker as kit\n"
        "assert all(getattr(kit, name) for name in kit.__all__)\n"
        "import headgate.cli.jobqueue.work, headgate.cli.jobqueue.jobs\n"
        "from headgate.cli import main\n"
        "sys.exit(main(['--help']) or main(['jobqueue', 'work', '--help']))"
    )
    done = _run(code, _not_in_the_base(), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
async def test_a_worker_with_the_base_alone_does_the_jobs_of_a_queue(tmp_path: Path) -> None:
    absent = _not_in_the_base()
    async with running_server(ServerSettings(database="memory:", port=0)) as server:
        add = ["jobqueue", "add", "--url", server.url, "--", "touch", str(tmp_path / "done")]
        work = ["jobqueue", "work", "--run-commands", "--stop-when-empty", "--url", server.url]
        for words in (add, work):
            done = await asyncio.to_thread(_run, _main(words), absent, tmp_path)
            assert done.returncode == 0, done.stderr
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("words", "absent", "extra"),
    [
        (["run", "--roster", "baselines"], {"polars"}, "run"),
        # As `run` is, here and below.
        pytest.param(["plan", "--roster", "baselines"], {"polars"}, "run", marks=pytest.mark.long),
        pytest.param(["query", "select 1", "--store", "."], {"duckdb"}, "run", marks=pytest.mark.long),
        (["config", "show"], {"yaml"}, "run"),
        (["jobqueue", "serve"], {"fastapi"}, "jobqueue"),
        (["serve-prefect"], {"prefect"}, "prefect"),
        pytest.param(["demo"], {"prefect"}, "prefect", marks=pytest.mark.long),  # as `serve-prefect` is
        (["placement", "status"], {"ray"}, "ray"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_a_command_without_its_extra_says_how_to_install_it(
    words: list[str], absent: set[str], extra: str, tmp_path: Path
) -> None:
    done = _run(_main(words), absent, tmp_path)
    assert f"pip install 'headgate[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("line", "absent", "extra"),
    [
        ("import headgate; headgate.evaluate", {"polars"}, "run"),
        ("from headgate import open_store", {"polars"}, "run"),
        ("from headgate.orchestration import run_server", {"prefect"}, "prefect"),
        ("from headgate.placement import connect; connect()", {"ray"}, "ray"),
        ("from headgate.reports import build_report", {"jinja2", "markupsafe"}, "reports"),
    ],
)
def test_a_name_of_the_library_without_its_extra_says_how_to_install_it(
    line: str, absent: set[str], extra: str, tmp_path: Path
) -> None:
    done = _run(line, absent, tmp_path)
    assert f"pip install 'headgate[{extra}]'" in done.stderr.splitlines()[-1]
