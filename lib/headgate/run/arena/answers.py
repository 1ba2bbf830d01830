"""The answers in the store, as the arena shows them: by environment, model and index."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import polars as pl

from headgate.config import Settings
from headgate.core import Message, Model
from headgate.environments import registry_of
from headgate.environments.rubric import transcript
from headgate.run.assembly import run_campaign, run_judged
from headgate.run.environments import judged_environments, usable_environments
from headgate.sampling import RosterSource, StaticRoster
from headgate.storage import SampleStore

_COLUMNS: Final = ("task_id", "model", "environment", "index", "score", "finished_at", "conversation")


@dataclass(frozen=True, slots=True)
class Answer:
    """One model's answer to one task.

    Attributes:
        question: everything that the model was told before its first reply.
        text: its reply, or the whole conversation from there on.
        replies: its replies one by one, as its environment received them.
    """

    question: str
    text: str
    replies: tuple[str, ...]


Answers = Mapping[tuple[str, str], Mapping[int, Answer]]
"""(environment, model) -> index -> answer."""


async def stored_answers(store: SampleStore, *, environments: Sequence[str], models: Sequence[str]) -> Answers:
    """Return the answers in the store: for each task the one that ended first, in whatever campaign.

    Samples without a score, or stored without their conversation, have no answer.

    Args:
        store: of samples.
        environments: all when empty.
        models: keys or names; all when empty.

    Raises:
        StoreError: if the store cannot be read.
    """
    frame = (await store.scan(environments=environments or None, columns=list(_COLUMNS))).frame
    rows = frame.filter(pl.col("score").is_not_null(), pl.col("conversation").str.len_bytes() > 0)
    if models:
        name = pl.col("model").str.replace(r"@[^@]*$", "")
        rows = rows.filter(pl.col("model").is_in(list(models)) | name.is_in(list(models)))
    first = rows.sort("finished_at", "task_id").unique(["environment", "model", "index"], keep="first")
    found: dict[tuple[str, str], dict[int, Answer]] = {}
    wanted = first.select("environment", "model", "index", "conversation").sort("environment", "model", "index")
    for environment, model, index, conversation in wanted.iter_rows():
        answer = answer_of(conversation)
        if answer is not None:
            found.setdefault((environment, model), {})[index] = answer
    return found


def answer_of(conversation: str) -> Answer | None:
    """Return the answer in a stored conversation; None if no model replied in it."""
    messages = [Message(*stored[:2]) for stored in orjson.loads(conversation)]
    opening = list(itertools.takewhile(lambda message: message.role != "assistant", messages))
    said = messages[len(opening) :]
    while said and said[-1].role == "system":  # an earlier judge's judgements, which this judge must not see
        said.pop()
    replies = tuple(message.content for message in said if message.role == "assistant")
    if not replies:
        return None
    return Answer("\n\n".join(message.content for message in opening), transcript(said), replies)


async def answered(
    settings: Settings,
    models: Sequence[str],
    instances: int,
    judge: Model,
    roster: RosterSource,
    store: SampleStore,
    **given: Any,
) -> None:
    """Have the roster's models answer tasks 0 to `instances` - 1 under the campaign's name; existing answers stay.

    In environments that need a judge, the answers are also judged and scored; if the settings name no environments,
    only these are used. `given` is passed on to the runs.

    Raises:
        HeadgateError: if an argument or a setting cannot be used.
    """
    chosen = StaticRoster((await roster.load()).chosen(models))
    registry = registry_of(settings)
    known = usable_environments(settings.environments or tuple(judged_environments((), registry)), registry)
    judged = tuple(name for name, one in known.items() if one.spec.needs_judge)
    others = tuple(name for name in known if name not in judged)
    # Samples without their conversation cannot be compared; the rubric is only for the comparison.
    own = settings.model_copy(update={"keep_conversations": True, "rubric": ""})
    if judged:
        of_judged = own.model_copy(update={"environments": judged})
        await run_judged(of_judged, instances=instances, judge=judge, roster=chosen, store=store, **given)
    stop: asyncio.Event | None = given.get("stop")
    if others and not (stop is not None and stop.is_set()):
        of_others = own.model_copy(update={"environments": others})
        await run_campaign(of_others, roster=chosen, store=store, instances=instances, **given)
