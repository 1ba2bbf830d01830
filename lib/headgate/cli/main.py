"""The `headgate` command: its tree of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import sys
from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from typing import Final

from cyclopts import App, CycloptsError

import headgate
from headgate.cli.commands import (
    COMMANDS,
    CONFIG_COMMANDS,
    ELASTIC_COMMANDS,
    JOBQUEUE_COMMANDS,
    LIMITS_COMMANDS,
    PLACEMENT_COMMANDS,
    TOKEN_COMMANDS,
)
from headgate.cli.output import console, print_error
from headgate.cli.renamed import current
from headgate.core.errors import HeadgateError
from headgate.telemetry import setup_logging

INTERRUPTED: Final = 130

EXIT_CODES: Final = {
    0: "done",
    1: "an error of Headgate itself, with its traceback",
    2: "input that cannot be used: a setting, a roster, an option",
    3: "something that is needed is not there: a store, a server, a package",
    4: "a check did not hold: capacity, a bar of a benchmark, a corrupt part, samples that keep failing",
    INTERRUPTED: "interrupted; what was sampled is safe",
}
"""Exit status of every command."""


def build_app() -> App:
    """Return the application with all its commands."""
    app = App(
        name="headgate",
        help="Continual, fair and safe sampling of many models on many environments.",
        version=headgate.__version__,
        result_action="return_value",
        exit_on_error=False,
        print_error=True,
    )
    _fill(app, COMMANDS)
    jobqueue = App(name="jobqueue", help="Serve jobs and policy servers to outside workers, and work on them.")
    groups = (
        (App(name="config", help="Show and check settings."), CONFIG_COMMANDS),
        (
            App(name="limits", help="Show and change the limits on requests in flight that Prefect keeps."),
            LIMITS_COMMANDS,
        ),
        (jobqueue, JOBQUEUE_COMMANDS),
        (
            App(name="placement", help="Run work on a Ray cluster by priority, preempting what is less important."),
            PLACEMENT_COMMANDS,
        ),
        (
            App(name="elastic", help="Run inference engines as a pool that wakes and sleeps with its load."),
            ELASTIC_COMMANDS,
        ),
    )
    for group, commands in groups:
        app.command(_fill(group, commands))
    jobqueue.command(_fill(App(name="token", help="Make and end the tokens of a queue."), TOKEN_COMMANDS))
    app.register_install_completion_command(name="--install-completion", add_to_startup=False)
    return app


def _fill(group: App, commands: Mapping[str, tuple[str, str]]) -> App:
    for name, (place, help_line) in commands.items():
        group.command(f"headgate.cli.{place}", name=name, help=help_line)
    return group


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status (`EXIT_CODES`)."""
    tokens, renamed = current(sys.argv[1:] if arguments is None else arguments)
    for sentence in renamed:
        console(stderr=True).print(sentence, highlight=False, markup=False)
    setup_logging(verbosity=1)
    try:
        result = build_app()(tokens)
    except CycloptsError:
        return 2
    except CancelledError:  # a second Ctrl-C while a run drains: see `stop_on_signals`
        console(stderr=True).print(EXIT_CODES[INTERRUPTED], highlight=False)
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseExceptionGroup as group:
        known = _first_known(group)
        if known is None:
            raise
        return _failed(known, tokens)
    except HeadgateError as error:
        return _failed(error, tokens)
    return result if isinstance(result, int) else 0


def _failed(error: HeadgateError, tokens: Sequence[str]) -> int:
    print_error(error, as_json="--json" in tokens)
    return error.exit_code


def _first_known(group: BaseExceptionGroup[BaseException]) -> HeadgateError | None:
    """Return the error of ours when the group holds nothing else."""
    known, others = group.split(HeadgateError)
    if known is None or others is not None:
        return None
    inner: BaseException = known
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return inner if isinstance(inner, HeadgateError) else None
