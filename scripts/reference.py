"""Writes the pages of docs/reference that the code gives: `make reference`; `--check` only compares."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from cyclopts import App
from elastic_reference import elastic_page
from jobqueue_reference import jobqueue_page
from placement_reference import placement_page

from headgate.cli import build_app
from headgate.cli.commands import TOPICS
from headgate.config import setting_fields, variables_of
from headgate.core import events
from headgate.environments import EnvironmentSpec, available
from headgate.telemetry import event_name

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
GROUPS = {
    "limit_law": "Request admission",
    "task_admission": "Task admission",
    "judge_model": "Judge",
    "agentgym_servers": "AgentGym servers",
    "environment_processes": "Environments that run apart",
    "sample_tokens": "Budgets",
    "events_file": "Telemetry",
    "campaign": "What is sampled, and where it goes",
    "daily_rate_per_env": "Rates",
    "num_evaluation_workers": "Workers and queue",
    "roster_refresh_s": "Timing",
    "request_timeout_s": "Requests",
    "enable_monitoring": "Monitoring",
}
"""First setting of a group -> heading of the group."""


def events_page() -> str:
    """Return one section per event class: its sentence and its fields."""
    lines = [
        "# Events",
        "",
        "Everything that happens is one event of one stream; log, metrics and monitoring API are made from it.",
        "With [`events_file`](settings.md#events_file) each event is also one JSON object on one line of a file:",
        "`sequence`, `wall` (seconds since 1970), `monotonic`, `event` (the small letters below), and `fields`.",
        "A `Sample` among the fields is spread into its [columns](storage.md#columns), without the conversation.",
    ]
    for cls in _event_classes():
        lines += [
            "",
            f"## `{cls.__name__}`",
            "",
            f"`{event_name(cls)}`. {_sentence(cls)}",
            "",
            "| field | type |",
            "|---|---|",
        ]
        lines += [f"| `{field.name}` | `{_escaped(str(field.type))}` |" for field in dataclasses.fields(cls)]
    return "\n".join(lines) + "\n"


def _event_classes() -> list[type[events.Event]]:
    members = [c for _, c in inspect.getmembers(events, inspect.isclass)]
    found = [c for c in members if issubclass(c, events.Event) and c is not events.Event]
    return sorted(found, key=lambda c: (c.__module__, inspect.getsourcelines(c)[1]))


def _sentence(thing: object) -> str:
    return re.sub(r"\s+", " ", inspect.getdoc(thing) or "").strip()


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def settings_page() -> str:
    """Return one section per setting: its meaning, default, flag-independent names."""
    lines = [
        "# Settings",
        "",
        "A value comes from a flag of the command line, else from an environment variable, else from the YAML file",
        "that `HEADGATE_CONFIG` names, else from the default below. A name that Headgate does not know is an error and",
        "is answered with the nearest one it knows. `headgate config show` prints every value and where it came from.",
        "",
        "In the file, a setting has the name of its heading. Variables of one setting are listed strongest first.",
        "Durations are in seconds, rates in samples per day.",
    ]
    for name, field in setting_fields().items():
        if name in GROUPS:
            lines += ["", f"## {GROUPS[name]}"]
        variables = ", ".join(f"`{v}`" for v in variables_of(name))
        default = field.get_default(call_default_factory=True)
        lines += ["", f"### `{name}`", "", str(field.description), ""]
        lines += [f"- Default: {_default(default)}", f"- Variables: {variables}"]
    return "\n".join(lines) + "\n"


def _default(value: object) -> str:
    if value is None or value in ("", (), {}) or str(value) == "":
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) and value < 1e5 else f"`{value}`"


def environments_page() -> str:
    """Return one section per installed environment of ours."""
    lines = [
        "# Environments",
        "",
        "What `make setup` installs. `headgate environments` lists what is there, your own ones included. Rates are",
        "samples per model and day and can be [changed](settings.md#rates); *chance* is the mean score of the baseline",
        "that answers at random.",
    ]
    for entry in available():
        if entry.spec is None:
            raise SystemExit(f"{entry.name} cannot be loaded: {entry.problem}")
        lines += ["", f"## `{entry.name}`", "", f"{entry.spec.summary.rstrip('.')}.", "", *_facts(entry.spec)]
    return "\n".join(lines) + "\n"


def _facts(spec: EnvironmentSpec) -> list[str]:
    facts = {
        "Daily rate": f"{spec.daily_rate:g}",
        "Tasks": f"{spec.data_length:,}".replace(",", " "),
        "Replies per episode": f"at most {spec.max_rounds}",
        "Time per episode": f"at most {spec.timeout_s:g} s",
        "Chance": "not measured" if spec.chance_score is None else f"{spec.chance_score:.3f}",
        "Licence of the data": spec.licence,
        "Source": spec.source,
    }
    return [f"- {name}: {value}" for name, value in facts.items() if value]


def cli_page() -> str:
    """Return one section per command, as its help has it; the options that many commands share stand once."""
    app = build_app()
    text = app.generate_docs(output_format="markdown", recursive=True, flatten_commands=True, heading_level=2)
    commands = text[text.index("## headgate run") :]
    for name in _usable_alone(app):
        commands = commands.replace(f"headgate {name} COMMAND", f"headgate {name} [COMMAND]")
    sections = [part for part in re.split(r"\n(?=## )", commands) if not part.startswith("## headgate --")]
    shared = [line for line in sections[0].splitlines() if _SHARED_OPTION.match(line)]
    lines = [
        "# Commands",
        "",
        "Every command takes `--help`; those that print something take `--json` and then print one JSON document.",
        "Tables are as wide as the terminal, or as `COLUMNS` says; piped ones are 160 columns wide without it.",
        "Exit statuses are listed in [Errors](errors.md). `headgate --install-completion` sets up completion in your",
        "shell.",
        "",
        *(f"- {title}: {', '.join(_linked(names))}" for parent, title, names in TOPICS if not parent),
        "",
        "## Shared options",
        "",
        "Where the [settings](settings.md) of a command come from. A flag wins over variables, files and defaults.",
        "",
        *shared,
    ]
    return "\n".join([*lines, "", *(_without(shared, section) for section in sections)]).rstrip() + "\n"


def _linked(names: str) -> Iterator[str]:
    for name in names.split():
        yield f"[{name}](#headgate-{name})"


def _usable_alone(app: App) -> Iterator[str]:
    """Yield the commands that have commands of their own and do something without one."""
    for name in app:
        if not name.startswith("-") and app[name].default_command and any(not one.startswith("-") for one in app[name]):
            yield name


_SHARED_OPTION = re.compile(r"\* `--(config|roster|environments|store|journal|campaign|workers|set)\b")


def _without(shared: list[str], section: str) -> str:
    lines = section.rstrip().splitlines()
    if not set(shared) <= set(lines):
        return "\n".join(lines) + "\n"
    text = "\n".join(line for line in lines if line not in shared).rstrip().removesuffix("**Parameters**:").rstrip()
    return text + "\n\nAnd the [shared options](#shared-options).\n"


PAGES: dict[str, Callable[[], str]] = {
    "events.md": events_page,
    "settings.md": settings_page,
    "environments.md": environments_page,
    "cli.md": cli_page,
    "jobqueue.md": jobqueue_page,
    "placement.md": placement_page,
    "elastic.md": elastic_page,
}


def main(arguments: list[str]) -> int:
    """Write every page, or with `--check` return 1 when one differs from what the code gives."""
    stale = []
    for name, page in PAGES.items():
        path, content = REFERENCE / name, page()
        if path.exists() and path.read_text(encoding="utf-8") == content:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.write_text(content, encoding="utf-8")
    if stale and "--check" in arguments:
        print(f"docs/reference: not what the code gives: {', '.join(stale)}. Run: make reference")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
