"""What holds for every tracked file. Patterns are written so that they do not match themselves."""

from __future__ import annotations

import ast
import importlib

import pytest

from tests.house.tree import ROOT, lines_matching, python_files, text_of, tracked_files

INDEX_HOSTS = r"p[y]pi\.org|python[h]osted|npm[j]s\.(org|com)|deb\.[d]ebian|test\.p[y]pi|conda\.[a]naconda"
MACHINE_PATHS = r"(?<![\w./}-])/(?:work|farm|home/\w+|Users/\w+|root)/[\w.]"
STUBS = r"NotImplemented[E]rror|place[h]older|\bT[O]DO\b|\bFIX[M]E\b|\bXX[X]\b"
MAX_LINES = 600
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "base", "misc"}


def test_no_file_names_a_package_index() -> None:
    assert lines_matching(INDEX_HOSTS, list(tracked_files())) == []


def test_no_file_holds_a_path_of_one_machine() -> None:
    assert lines_matching(MACHINE_PATHS, list(tracked_files())) == []


def test_nothing_is_left_unfinished() -> None:
    paths = [p for p in tracked_files() if p.suffix in {".py", ".md", ".sql", ".sh", ".yaml", ".yml", ".toml"}]
    assert lines_matching(STUBS, paths) == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (INDEX_HOSTS, "index-url = https://p" + "ypi.org/simple"),
        (MACHINE_PATHS, "open('/" + "root/results.txt')"),
        (STUBS, "raise NotImplemented" + "Error"),
    ],
)
def test_the_patterns_find_what_they_look_for(pattern: str, line: str) -> None:
    import re

    assert re.search(pattern, line)


def test_every_python_file_is_short_enough_to_read() -> None:
    lengths = {str(p.relative_to(ROOT)): (text_of(p) or "").count("\n") for p in python_files()}
    assert {name: n for name, n in lengths.items() if n >= MAX_LINES} == {}


def test_modules_are_named_after_what_they_hold() -> None:
    paths = python_files("lib", "flows", "blocks")
    assert [str(p.relative_to(ROOT)) for p in paths if {p.stem, p.parent.name} & VAGUE_NAMES] == []


def test_every_text_file_ends_with_a_newline_and_holds_no_carriage_return() -> None:
    texts = {str(p.relative_to(ROOT)): text_of(p) for p in tracked_files() if p.suffix not in {".svg", ".lock"}}
    wrong = [name for name, text in texts.items() if text and ("\r\n" in text or not text.endswith("\n"))]
    assert wrong == []


def _inner_imports(source: str, own_room: str) -> list[str]:
    """Return imports of the form `headgate.room.file` from outside of that room."""
    found = []
    for node in ast.walk(ast.parse(source)):
        modules: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            modules = [node.module]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            parts = module.split(".")
            if (
                parts[0] == "headgate"
                and len(parts) > 2
                and parts[1] != own_room
                and not _is_exported(parts[1], parts[2])
            ):
                found.append(module)
    return found


def _is_exported(room: str, module: str) -> bool:
    """A room may offer a whole module by its front door, as `core` does `errors`."""
    return module in importlib.import_module(f"headgate.{room}").__all__


def test_an_import_past_a_front_door_is_found() -> None:
    assert _inner_imports("from headgate.core.ids import TaskId", "cli") == ["headgate.core.ids"]
    assert _inner_imports("from headgate.core.ids import TaskId\nfrom headgate.core import Task", "core") == []
    assert _inner_imports("from headgate.core.errors import StoreError", "cli") == []


def test_nobody_imports_past_a_front_door() -> None:
    wrong = []
    for path in python_files("lib", "flows", "blocks"):
        parts = path.relative_to(ROOT).parts
        own_room = parts[2] if parts[:2] == ("lib", "headgate") and len(parts) > 3 else ""
        inner = _inner_imports(text_of(path) or "", own_room)
        wrong += [f"{path.relative_to(ROOT)} imports {module}" for module in inner]
    assert wrong == []


def test_every_room_says_what_it_exports() -> None:
    """A folder inside of a room may be a folder only, with nothing but a docstring in its `__init__.py`.

    By `import *` one says that everything is exported.
    """
    doors = [p for p in python_files("lib") if p.name == "__init__.py"]
    with_names = [p for p in doors if p.parts[-3] == "headgate" or "import" in (text_of(p) or "")]
    says = ("__all__", "import *")
    assert [str(p.relative_to(ROOT)) for p in with_names if not any(s in (text_of(p) or "") for s in says)] == []
