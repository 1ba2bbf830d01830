"""The `headgate` command: its tree of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from cyclopts import App, CycloptsError

import headgate
from headgate.cli.output import print_error
from headgate.core.errors import HeadgateError
from headgate.telemetry import setup_logging

EXIT_CODES: Final = {
    0: "done",
    1: "an error of Headgate itself, with its traceback",
    2: "input that cannot be used: a setting, a roster, an option",
    3: "something that is needed is not there: a store, a server, a package",
    4: "a check did not hold: capacity, a bar of a benchmark, a corrupt part, samples that keep failing",
    130: "interrupted; what was sampled is safe",
}
"""Exit status of every command."""

COMMANDS: Final = {
    "run": ("running:run", "Sample the roster's models in every environment until stopped."),
    "judge": ("judging:judge", "Sample environments whose answers another model judges, each task once."),
    "plan": ("plan:plan", "Compare the samples that the rates demand with what workers and endpoints carry."),
    "models": ("listing:models", "Check the roster and list its models."),
    "environments": ("listing:environments", "List the environments that are installed."),
    "query": ("data:query", "Ask the stored samples a question in SQL."),
    "summary": ("data:summary", "Show counts, means and intervals per model and environment."),
    "report": ("data:report", "Write a self-contained HTML report of the stored samples."),
    "export": ("data:export", "Write stored samples as JSON lines or in the formats of other tools."),
    "import": ("data:import_", "Store samples from a file that another tool wrote."),
    "compact": ("data:compact", "Merge small parts of the store into large ones."),
    "verify": ("data:verify", "Read every stored object and compare it with its checksum."),
    "trace": ("trace:trace", "Turn a file of events into a trace that Perfetto opens."),
    "why": ("why:why", "Say which gate holds a task, why, and until when."),
    "doctor": ("diagnosis:doctor", "Check what a campaign needs on this machine."),
    "serve-baselines": ("serving:serve_baselines", "Serve the baseline agents as an OpenAI-compatible endpoint."),
    "serve-model": ("serving:serve_model", "Serve a small real language model."),
    "bench": ("benching:bench", "Run a benchmark scenario beside its rivals."),
    "demo": ("demo:demo", "Run the main job from end to end on this machine."),
}
"""Name -> where the command is, and its one-line help. Loaded when called: none waits for the imports of another."""

CONFIG_COMMANDS: Final = {
    "show": ("configuration:show", "Show every setting with its value and where it came from."),
    "check": ("configuration:check", "Check settings, roster, environments and rates without running anything."),
}
"""The same for `headgate config …`."""

LIMITS_COMMANDS: Final = {
    "show": ("limits:show", "Show limits, the slots that are taken, and who holds them."),
    "apply": ("limits:apply", "Create or change the limits of a block or file."),
    "set": ("limits:set_", "Change a limit while it is in use."),
    "audit": ("limits:audit", "Compare the slots that limits count with those that are held."),
}
"""The same for `headgate limits …`."""


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
    config = App(name="config", help="Show and check settings.")
    limits = App(name="limits", help="Show and change the limits on requests in flight that Prefect keeps.")
    for group, commands in ((app, COMMANDS), (config, CONFIG_COMMANDS), (limits, LIMITS_COMMANDS)):
        for name, (place, help_line) in commands.items():
            group.command(f"headgate.cli.{place}", name=name, help=help_line)
    app.command(config)
    app.command(limits)
    app.register_install_completion_command(name="--install-completion", add_to_startup=False)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status (`EXIT_CODES`)."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    setup_logging(verbosity=1)
    try:
        result = build_app()(tokens)
    except CycloptsError:
        return 2
    except KeyboardInterrupt:
        return 130
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
