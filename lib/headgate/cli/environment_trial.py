"""`headgate environments try`: one episode, shown word for word while it happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from headgate.campaign import Trial, trial
from headgate.cli.choices import RosterChoices
from headgate.cli.output import AsJson, console, print_json, safe_lines
from headgate.core import ChatReply, Message
from headgate.telemetry import safe_text

UNSCORED: Final = 3
"""Exit status of an episode that ended without a score: something that it needs is not there, or failed."""

_VERDICT: Final = {True: "success", False: "no success"}
_STYLES: Final = {"system": "magenta", "user": "cyan", "assistant": "green"}


def try_(
    name: str,
    choices: RosterChoices | None = None,
    *,
    model: Annotated[
        str, Parameter(name=("--model", "-m"), help="A model of the roster, or a baseline agent.")
    ] = "baseline-solver",
    index: Annotated[int, Parameter(name=("--index", "-i"), help="Which of the environment's tasks.")] = 0,
    as_json: AsJson = False,
) -> int:
    """Run one task with one model and show the whole conversation, the score and its reason. Nothing is stored.

    The baseline agents need no roster: baseline-random, baseline-greedy and baseline-solver. Where a judge gives the
    score, its questions are shown in place of one. Exit status 3 when the episode ended without a score otherwise.

    Example: headgate environments try agentgym:textcraft --model baseline-greedy --index 7
    """
    settings = (choices or RosterChoices()).load().settings
    show = None if as_json else _teller(console())
    done = asyncio.run(trial(settings, name, model, index, show))
    if as_json:
        print_json(_document(done))
    else:
        _conclude(console(), done)
    return UNSCORED if done.result.score is None and not done.result.questions else 0


def _teller(out: Console) -> Callable[[Sequence[Message], ChatReply], None]:
    """Return what prints each message once, as soon as the model has replied to it."""
    told = 0

    def tell(messages: Sequence[Message], reply: ChatReply) -> None:
        nonlocal told
        for message in messages[told:]:
            _print_message(out, message.role, message.content, "")
        told = len(messages) + 1
        tokens = f"{reply.prompt_tokens} + {reply.completion_tokens} tokens, {reply.latency_s:.2f} s"
        _print_message(out, "assistant", reply.text, tokens)

    return tell


def _print_message(out: Console, role: str, content: str, note: str) -> None:
    heading = Text(f"── {role} ", style=f"bold {_STYLES[role]}")
    heading.append(note, style="dim")
    out.print(heading)
    # Line by line: a terminal must not take orders from what a model says, and lines are what it is shown in.
    out.print(safe_lines(content), markup=False, highlight=False)
    out.print()


def _conclude(out: Console, done: Trial) -> None:
    result = done.result
    if result.questions:
        out.print("── a judge would be asked", style="bold yellow")
        for message in result.questions[0]:
            out.print(safe_lines(message.content), markup=False, highlight=False)
        out.print()
    if result.error:
        kind = result.error_kind.value if result.error_kind else "after the score"
        out.print(f"error ({kind}): {safe_text(result.error)}", markup=False, highlight=False)
    says = "no score" if result.score is None else f"score {result.score:g} ({_VERDICT[result.success]})"
    if result.questions:
        says = "no score here, a judge gives it: `headgate judge` runs it with one"
    out.print(f"{done.spec.name} task {done.index}, {done.model}: {says}", style="bold", highlight=False, markup=False)
    if result.why:
        out.print(safe_text(result.why), markup=False, highlight=False)
    out.print(
        f"{_replies(result.turns)}, {result.prompt_tokens} + {result.completion_tokens} tokens, {done.took_s:.2f} s, "
        f"of which {done.model_s:.2f} s were the model's",
        highlight=False,
        markup=False,
    )


def _replies(turns: int) -> str:
    return "1 reply" if turns == 1 else f"{turns} replies"


def _document(done: Trial) -> dict[str, Any]:
    result = done.result
    return {
        "environment": done.spec.name,
        "model": done.model,
        "index": done.index,
        "score": result.score,
        "success": result.success,
        "why": result.why,
        "error_kind": result.error_kind.value if result.error_kind else None,
        "error": result.error,
        "turns": result.turns,
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
        "took_s": done.took_s,
        "model_s": done.model_s,
        "messages": [{"role": message.role, "content": message.content} for message in result.messages],
        "judge_questions": [
            [{"role": message.role, "content": message.content} for message in question]
            for question in result.questions
        ],
    }
