"""The `headgate` command: its tree of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import sys
from asyncio import CancelledError
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from cyclopts import (
    App,
    CycloptsError,
    CycloptsPanel,
    Group,
    MissingArgumentError,
    Parameter,
    UnknownCommandError,
    UnusedCliTokensError,
)
from cyclopts.command_spec import CommandSpec

import headgate
from headgate.cli.commands import GROUPS, TOPICS, all_commands
from headgate.cli.output import INTERRUPTED, READER_GONE, console, is_reader_gone, leave_output, print_error, say
from headgate.cli.renamed import current
from headgate.core import missing_extra
from headgate.core.errors import HeadgateError, did_you_mean
from headgate.telemetry import setup_logging

if TYPE_CHECKING:
    from rich.panel import Panel

EXIT_CODES: Final = {
    0: "done",
    1: "a defect of Headgate, with its traceback",
    2: "input that cannot be used: a setting, a roster, an option, a token",
    3: "something needed is missing: a store, a server, a package",
    4: "a check did not hold: capacity, a benchmark's bar, a corrupt part, samples that fail or are not stored",
    INTERRUPTED: "interrupted; what was sampled is safe",
    READER_GONE: "the reader of the output is gone, as after `| head`",
}
"""Exit status of every command."""


class _Command(CommandSpec):
    """A command whose one-line help is for the list of commands; its own help is its docstring, in Markdown.

    Its options have no negative form, such as `--no-json`, unless they name one.
    """

    def resolve(self, parent_app: App) -> App:
        self.help = None
        app = super().resolve(parent_app)
        app.help_format = "markdown"
        app.default_parameter = Parameter(negative=(), show_default=_shown_default)
        return app


def _shown_default(value: object) -> str | None:
    """Return a default as help shows it; None where it only means that nothing was given."""
    if value is None or value is False or value in ("", ()):
        return None
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def build_app() -> App:
    """Return the application with all its commands."""
    app = App(
        name="headgate",
        help="Continual, fair and safe sampling of many models on many environments.",
        version=headgate.__version__,
        help_format="plaintext",  # for lists of commands; loading the Markdown renderer takes longer than all else
        result_action="return_value",
        exit_on_error=False,
        print_error=True,
        error_formatter=_refused,
        group_commands=Group("Commands", sort_key=len(TOPICS)),
    )
    shown: dict[str, dict[str, Any]] = {}
    for order, (parent, title, names) in enumerate(TOPICS):
        topic = Group(title, sort_key=order)
        for number, name in enumerate(names.split()):
            shown[f"{parent} {name}".strip()] = {"group": topic, "sort_key": number}
    groups = {name: App(name=name.split()[-1], help=line, **shown.get(name, {})) for name, line in GROUPS.items()}
    groups[""] = app
    for path, (place, line) in all_commands().items():
        group, _, name = path.rpartition(" ")
        # `App.command` would show the one line in place of the docstring.
        groups[group]._commands[name] = _Command(place, name, help=line, **shown.get(path, {}))  # noqa: SLF001
    for name in GROUPS:
        groups[name.rpartition(" ")[0]].command(groups[name])
    app.register_install_completion_command(name="--install-completion", add_to_startup=False)
    options = Group("Options", sort_key=len(TOPICS) + 1)
    for option in ("--help", "--version", "--install-completion"):
        app[option].group = options
    return app


def _refused(error: CycloptsError) -> Panel:
    """Return the panel for arguments that a command refuses: those that it does not take, or the one that it lacks."""
    command = " ".join(("headgate", *(error.command_chain or ())))
    if isinstance(error, UnusedCliTokensError):
        many = " ".join(error.unused_tokens or ())
        return CycloptsPanel(f"`{command}` has no use for {many!r}; `{command} --help` shows what it takes.")
    if isinstance(error, UnknownCommandError) and error.app:  # cyclopts' own message would import every command
        token = (error.unused_tokens or [""])[0]
        end = did_you_mean(token, error.app._commands, otherwise=f"; `{command} --help` lists them.")  # noqa: SLF001
        return CycloptsPanel(f"`{command}` has no command {token!r}{end}")
    if isinstance(error, MissingArgumentError) and (needed := error.argument) and not error.keyword:
        name = needed.name if needed.index is None else needed.name.removeprefix("--").upper()
        return CycloptsPanel(f"`{command}` needs {name}: {needed.parameter.help or 'it has no default.'}")
    return CycloptsPanel(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status (`EXIT_CODES`)."""
    tokens, renamed = current(sys.argv[1:] if arguments is None else arguments)
    for sentence in renamed:
        say(sentence, stderr=True)
    setup_logging(verbosity=1)
    try:
        result = build_app()(tokens)
        sys.stdout.flush()
    except CycloptsError:
        return 2
    except CancelledError:  # a second Ctrl-C while a run drains: see `stop_on_signals`
        console(stderr=True).print(EXIT_CODES[INTERRUPTED], highlight=False)
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BaseExceptionGroup, BrokenPipeError, HeadgateError, ImportError) as error:
        if isinstance(error, BrokenPipeError) and is_reader_gone():
            return leave_output()
        known = _known(error, tokens)
        if known is None:
            raise
        print_error(known, as_json="--json" in tokens)
        return known.exit_code
    return result if isinstance(result, int) else 0


def _known(error: BaseException, tokens: Sequence[str]) -> HeadgateError | None:
    """Return the Headgate error behind another one; None if there is none, or if others stand beside it."""
    if isinstance(error, ImportError):
        absent = error.__cause__ if isinstance(error.__cause__, ModuleNotFoundError) else error  # cyclopts wraps it
        return missing_extra(absent, f"headgate {_command_in(tokens)}")
    if isinstance(error, BaseExceptionGroup) and error.split(HeadgateError)[1] is not None:
        return None
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, HeadgateError) else None


def _command_in(tokens: Sequence[str]) -> str:
    """Return the words that name the command, without its arguments."""
    commands = all_commands()
    names = (" ".join(tokens[:count]) for count in (3, 2, 1))
    return next((name for name in names if name in commands), "")
