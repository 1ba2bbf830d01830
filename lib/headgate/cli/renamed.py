"""Options and values that were renamed: the old name still works, and the command says the new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple


class Renamed(NamedTuple):
    """The present name of an option, and how its value is written there."""

    name: str
    value: Callable[[str], str] = str


def _affine(form: str) -> str:
    return {"seed-results": "affine-results", "seed-summary": "affine-summary"}.get(form, form)


def _verl(policy: str) -> str:
    return "verl" if policy == "seed" else policy


RENAMED: Final[Mapping[str, Mapping[str, Renamed]]] = {
    "": {"--environments": Renamed("--environment")},
    "arena": {"--models": Renamed("--model"), "--html": Renamed("--output")},
    "leaderboard": {"--html": Renamed("--output")},
    "export": {"--models": Renamed("--model"), "--format": Renamed("--format", _affine)},
    "import": {"--format": Renamed("--format", _affine)},
    "report": {"--hours": Renamed("--since", "{}h".format)},
    "why": {"--address": Renamed("--url")},
    "demo": {"--window-s": Renamed("--duration")},
    "elastic replay": {"--policy": Renamed("--policy", _verl), "--frontier": Renamed("--frontier", _verl)},
    "elastic demo": {"--seconds": Renamed("--duration")},
    "elastic fake-engine": {"--api": Renamed("--kind")},
    "jobqueue serve": {"--seed-acquire-wait-s": Renamed("--legacy-acquire-wait-s")},
    "jobqueue work": {
        "--teams": Renamed("--team"),
        "--tasks": Renamed("--task"),
        "--pools": Renamed("--pool"),
        "--name": Renamed("--worker"),
        "--timeout": Renamed("--timeout-s"),
        "--grace": Renamed("--grace-s"),
        "--lease": Renamed("--lease-s"),
        "--idle-exit": Renamed("--idle-exit-s"),
    },
    "jobqueue reserve": {"--timeout": Renamed("--timeout-s")},
    "jobqueue generate": {
        "--output-jobs-file": Renamed("--jobs-file"),
        "--output-resources-file": Renamed("--resources-file"),
        "--seed-groups": Renamed("--legacy-groups"),
    },
    "placement submit": {"--cpu": Renamed("--cpus"), "--gpu": Renamed("--gpus")},
    "placement simulate": {"--figure": Renamed("--output")},
}
"""Command -> former option -> what it is now; those of "" hold for every command."""


def current(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a command line with present names, and a sentence for each option or value that was renamed.

    What follows `--` is another program's command line, and stays as it is.
    """
    end = tokens.index("--") if "--" in tokens else len(tokens)
    words = next((n for n, token in enumerate(tokens) if token.startswith("-")), len(tokens))
    renamed = dict(RENAMED[""])
    for depth in (1, 2):
        renamed |= RENAMED.get(" ".join(tokens[: min(depth, words)]), {})
    found, said = list(tokens), []
    for place in range(end):
        name, equals, value = found[place].partition("=")
        now = renamed.get(name)
        if now is None:
            continue
        given = value if equals or place + 1 >= end else found[place + 1]
        if now.name != name:
            said.append(f"{name} is called {now.name} now")
        elif now.value(given) != given:
            said.append(f"{name} {given} is called {name} {now.value(given)} now")
        if equals:
            found[place] = f"{now.name}={now.value(given)}"
            continue
        found[place] = now.name
        if place + 1 < end:
            found[place + 1] = now.value(given)
    return found, said
