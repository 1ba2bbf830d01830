"""What `--help` shows: one line for each command of a list, and all there is to say about a single one."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
from cyclopts.command_spec import CommandSpec

from headgate import cli
from headgate.cli import build_app
from headgate.cli.commands import GROUPS, TOPICS, all_commands
from tests.cli.conftest import Command


def test_the_help_of_a_command_is_its_whole_docstring() -> None:
    app = build_app()
    for path in all_commands():
        command = app
        for word in path.split():
            command = command[word]
        assert command.default_command is not None
        assert command.help == command.default_command.__doc__, path


def test_no_module_of_a_command_takes_the_name_of_what_other_packages_print_with() -> None:
    for place, _ in all_commands().values():
        importlib.import_module(place.partition(":")[0])
    assert [name for name in cli.__all__ if isinstance(getattr(cli, name), ModuleType)] == []


def test_help_of_a_command_says_its_exit_statuses(headgate: Command) -> None:
    assert "Exit status 4 when" in headgate("plan", "--help").out


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_a_list_of_commands_has_the_one_line_of_each(group: str, headgate: Command) -> None:
    shown = " ".join(headgate(*group.split(), "--help").out.replace("│", " ").split())
    lines = [line.replace("`", "") for path, (_, line) in all_commands().items() if path.rpartition(" ")[0] == group]
    assert lines
    assert [line for line in lines if line not in shown] == []


@pytest.mark.parametrize("group", ["", "jobqueue"])
def test_each_command_of_a_long_list_stands_under_one_topic(group: str) -> None:
    named = [f"{group} {name}".strip() for parent, _, names in TOPICS if parent == group for name in names.split()]
    ours = [path for path in all_commands() | GROUPS if path.rpartition(" ")[0] == group]
    assert sorted(named) == sorted(ours)


def test_each_thing_that_a_command_takes_is_explained() -> None:
    app = build_app()
    for path in [*all_commands(), "environments try"]:
        command = app
        for word in path.split():
            command = command[word]
        taken = [one for one in command.assemble_argument_collection() if one.parse and not one.children]
        assert [one.name for one in taken if not one.parameter.help] == [], path


def test_defaults_that_say_nothing_are_not_shown(headgate: Command) -> None:
    shown = headgate("run", "--help").out
    assert "[default: 0]" in shown
    assert all(nothing not in shown for nothing in ("False", "()", '""'))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rnu",), "`headgate` has no command 'rnu'; did you mean 'run'?"),
        (("jobqueue", "stats"), "`headgate jobqueue` has no command 'stats'; did you mean 'status'?"),
        (("xyzzy", "--json"), "`headgate` has no command 'xyzzy'; `headgate --help` lists them."),
    ],
)
def test_a_command_that_is_not_there_is_told_with_the_nearest_and_without_importing_any(
    headgate: Command, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def imports(command: CommandSpec, parent_app: object) -> None:
        raise AssertionError(f"{command.import_path} was imported")

    monkeypatch.setattr(CommandSpec, "resolve", imports)
    told = headgate(*words)
    assert told.status == 2
    assert said in " ".join(told.err.replace("│", " ").split())
