"""`headgate environments`: the environments, the mean cost of their samples, and one episode to watch."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from cyclopts import App, Parameter
from rich.text import Text

from headgate import run as runs
from headgate import storage
from headgate.cli.options import RosterChoices, StoreChoices
from headgate.cli.output import AsJson, console, counted, print_json, print_table, say
from headgate.config import Settings
from headgate.core import ChatReply, Message
from headgate.core.errors import HeadgateError
from headgate.environments import Available, registry_of
from headgate.telemetry import safe_text

UNSCORED: Final = 3
"""Exit status of an episode that ended without a score: something that it needs is missing or failed."""

_VERDICT: Final = {True: "success", False: "no success"}
_STYLES: Final = {"system": "magenta", "user": "cyan", "assistant": "green"}

_COLUMNS: Final = (
    "environment",
    "per day",
    "tasks",
    "rounds",
    "chance",
    "tokens",
    "seconds",
    "licence",
    "what it asks",
)

_SPEC = ("daily_rate", "data_length", "max_rounds", "chance_score", "needs_judge", "licence", "source", "summary")
"""Fields of an environment's spec in `--json`."""

_TRIED = ("score", "success", "why", "error_kind", "error", "turns", "prompt_tokens", "completion_tokens")
"""Fields of an episode's result in `--json`."""

environments: Final = App(name="environments", result_action="return_value")


class MeanCost(NamedTuple):
    """What a sample has cost on average, over everything in the store."""

    samples: int = 0
    """How many, including those without a score."""
    mean_tokens: float | None = None
    """Prompt and completion tokens per sample."""
    mean_seconds: float | None = None
    """Per scored sample, None before the first."""


@environments.default
def list_(
    choices: StoreChoices | None = None,
    *,
    collection: Annotated[str, Parameter(help="List the environments of this collection, by its prefix.")] = "",
    as_json: AsJson = False,
) -> int:
    """List the environments that are installed or served, with rate, size, chance level, mean cost and licence.

    Tokens and seconds are means per sample in the store. Collections are listed below by their prefix; their
    environments are sampled only if they are named, also by a pattern such as `reasoning-gym:*`.
    """
    settings = (choices or StoreChoices()).load().settings
    registry = registry_of(settings)
    entries = registry.available_in(collection) if collection else registry.available()
    collections = () if collection else registry.collections()
    has_samples = "://" in settings.store or Path(settings.store).expanduser().is_dir()
    costs = asyncio.run(_costs(settings)) if has_samples else {}
    if as_json:
        print_json(
            {
                "environments": [_document(entry, costs.get(entry.name, MeanCost())) for entry in entries],
                "collections": [
                    {name: getattr(entry, name) for name in ("prefix", "extra", "summary", "problem")}
                    for entry in collections
                ],
            }
        )
        return 0
    title = counted(len(entries), "environment") + (f" of {collection}" if collection else "")
    print_table(
        title,
        _COLUMNS,
        [_row(entry, costs.get(entry.name, MeanCost())) for entry in entries],
        right=range(1, 7),
        spare=("licence", "rounds", "seconds", "tokens"),
    )
    if collections:
        lines = [(f"{one.prefix}:…", one.extra, one.problem or one.summary) for one in collections]
        heading = f"{len(lines)} collections (headgate environments --collection NAME)"
        print_table(heading, ("collection", "extra", "what it holds"), lines)
    return 0


async def _costs(settings: Settings) -> Mapping[str, MeanCost]:
    """Return the mean cost of each environment with stored samples; empty if the store cannot be read."""
    try:
        pairs = (await storage.sample_store(settings).summary(time.time(), save=False)).pairs
    except (HeadgateError, OSError):
        return {}
    costs: dict[str, MeanCost] = {}
    for name in {pair.environment for pair in pairs}:
        ours = [pair for pair in pairs if pair.environment == name]
        samples, scored = sum(pair.count + pair.unscored for pair in ours), sum(pair.count for pair in ours)
        tokens = sum(pair.prompt_tokens + pair.completion_tokens for pair in ours)
        seconds = sum(pair.count * (pair.mean_latency_s or 0.0) for pair in ours)
        costs[name] = MeanCost(samples, tokens / max(samples, 1), seconds / scored if scored else None)
    return costs


def _row(entry: Available, cost: MeanCost) -> Sequence[object]:
    spec = entry.spec
    if spec is None:
        return (entry.name, *[None] * (len(_COLUMNS) - 2), entry.problem)
    figures = (spec.daily_rate, spec.data_length, spec.max_rounds, spec.chance_score, *cost[1:])
    return (entry.name, *figures, spec.licence or None, spec.summary)


def _document(entry: Available, cost: MeanCost) -> Mapping[str, Any]:
    stated = {name: getattr(entry.spec, name, None) for name in _SPEC}
    stated["licence"] = stated["licence"] or None
    return {"name": entry.name, "problem": entry.problem, **stated, **cost._asdict()}


@environments.command(name="try")
def try_(
    name: Annotated[str, Parameter(help="The environment.")],
    choices: RosterChoices | None = None,
    *,
    model: Annotated[
        str, Parameter(name=("--model", "-m"), help="A model of the roster, or a baseline agent.")
    ] = "baseline-solver",
    index: Annotated[int, Parameter(name=("--index", "-i"), help="Which of the environment's tasks.")] = 0,
    as_json: AsJson = False,
) -> int:
    """Run one task with one model and show the whole conversation, the score and its reason. Nothing is stored.

    The baseline agents baseline-random, baseline-greedy and baseline-solver need no roster. If a judge gives the score,
    its questions are shown instead. Exit status 3 when the episode ended without a score for any other reason.

    Example: headgate environments try agentgym:textcraft --model baseline-greedy --index 7
    """
    settings = (choices or RosterChoices()).load().settings
    show = None if as_json else _teller()
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        done = asyncio.run(runs.trial(settings, name, model, index, show))
    if as_json:
        print_json(_trial_document(done))
    else:
        _conclude(done)
    return UNSCORED if done.result.score is None and not done.result.questions else 0


def _teller() -> Callable[[Sequence[Message], ChatReply], None]:
    """Return a function that prints each message once, as soon as the model has replied to it."""
    told = 0

    def tell(messages: Sequence[Message], reply: ChatReply) -> None:
        nonlocal told
        for message in messages[told:]:
            _print_message(message.role, message.content, "")
        told = len(messages) + 1
        tokens = f"{reply.prompt_tokens} + {reply.completion_tokens} tokens, {reply.latency_s:.2f} s"
        _print_message("assistant", reply.text, tokens)

    return tell


def _print_message(role: str, content: str, note: str) -> None:
    heading = Text(f"── {role} ", style=f"bold {_STYLES[role]}")
    heading.append(note, style="dim")
    console().print(heading)
    say(f"{content}\n")


def _conclude(done: runs.Trial) -> None:
    result = done.result
    if result.questions:
        console().print("── a judge would be asked", style="bold yellow")
        for message in result.questions[0]:
            say(message.content)
        say("")
    if result.error:
        kind = result.error_kind.value if result.error_kind else "after the score"
        say(f"error ({kind}): {safe_text(result.error)}")
    says = "no score" if result.score is None else f"score {result.score:g} ({_VERDICT[result.success]})"
    if result.questions:
        says = "no score here, a judge gives it: `headgate judge` runs it with one"
    said = f"{done.spec.name} task {done.index}, {done.model}: {says}"
    console().print(said, style="bold", highlight=False, markup=False)
    if result.why:
        say(safe_text(result.why))
    replies = counted(result.turns, "reply", "replies")
    say(
        f"{replies}, {result.prompt_tokens} + {result.completion_tokens} tokens, {done.took_s:.2f} s, "
        f"of which the model took {done.model_s:.2f} s"
    )


def _trial_document(done: runs.Trial) -> dict[str, Any]:
    result = done.result
    return {
        "environment": done.spec.name,
        "model": done.model,
        "index": done.index,
        **{name: getattr(result, name) for name in _TRIED},
        "took_s": done.took_s,
        "model_s": done.model_s,
        "messages": result.messages,
        "judge_questions": result.questions,
    }
