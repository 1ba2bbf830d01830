"""`headgate environments`: what can be sampled, and what a sample of it has cost so far."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from headgate.cli.choices import StoreChoices
from headgate.cli.environment_trial import try_
from headgate.cli.output import AsJson, counted, print_json, print_table
from headgate.config import Settings
from headgate.core.errors import HeadgateError
from headgate.environments import Available, AvailableCollection, registry_of
from headgate.storage import sample_store

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

environments: Final = App(name="environments", result_action="return_value")


@dataclass(frozen=True, slots=True)
class MeanCost:
    """What a sample has cost on average, over everything in the store.

    Attributes:
        samples: how many, those without a score included.
        tokens: prompt and completion, per sample.
        seconds: per scored sample, None before the first.
    """

    samples: int
    tokens: float
    seconds: float | None


@environments.default
def list_(
    choices: StoreChoices | None = None,
    *,
    collection: Annotated[str, Parameter(help="List the environments of this collection, by its prefix.")] = "",
    as_json: AsJson = False,
) -> int:
    """List the environments that are installed or served, with rate, size, chance level, mean cost and licence.

    Tokens and seconds are means per sample in the store. Collections are listed below by their prefix; their
    environments are sampled only where they are named, by a pattern such as `reasoning-gym:*` as well.
    """
    settings = (choices or StoreChoices()).load().settings
    registry = registry_of(settings)
    entries = registry.available_in(collection) if collection else registry.available()
    collections = () if collection else registry.collections()
    costs = asyncio.run(_costs(settings))
    if as_json:
        print_json(
            {
                "environments": [_document(entry, costs.get(entry.name)) for entry in entries],
                "collections": [_collection_document(entry) for entry in collections],
            }
        )
        return 0
    title = counted(len(entries), "environment") + (f" of {collection}" if collection else "")
    print_table(title, _COLUMNS, [_row(entry, costs.get(entry.name)) for entry in entries], right=(1, 2, 3, 4, 5, 6))
    if collections:
        _print_collections(collections)
    return 0


environments.command(try_, name="try")


async def _costs(settings: Settings) -> Mapping[str, MeanCost]:
    """Return the mean cost of each environment that the store has samples of; nothing where it cannot be read."""
    try:
        pairs = (await sample_store(settings).summary(time.time(), save=False)).pairs
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


def _row(entry: Available, cost: MeanCost | None) -> Sequence[object]:
    spec = entry.spec
    if spec is None:
        return (entry.name, *[None] * (len(_COLUMNS) - 2), entry.problem)
    tokens, seconds = (cost.tokens, cost.seconds) if cost else (None, None)
    figures = (spec.daily_rate, spec.data_length, spec.max_rounds, spec.chance_score, tokens, seconds)
    return (entry.name, *figures, spec.licence or None, spec.summary)


def _document(entry: Available, cost: MeanCost | None) -> Mapping[str, Any]:
    spec = entry.spec
    return {
        "name": entry.name,
        "problem": entry.problem,
        "daily_rate": spec.daily_rate if spec else None,
        "data_length": spec.data_length if spec else None,
        "max_rounds": spec.max_rounds if spec else None,
        "chance_score": spec.chance_score if spec else None,
        "needs_judge": spec.needs_judge if spec else None,
        "licence": (spec.licence or None) if spec else None,
        "source": spec.source if spec else None,
        "summary": spec.summary if spec else None,
        "samples": cost.samples if cost else 0,
        "mean_tokens": cost.tokens if cost else None,
        "mean_seconds": cost.seconds if cost else None,
    }


def _print_collections(collections: Sequence[AvailableCollection]) -> None:
    rows = [(f"{entry.prefix}:…", entry.extra, entry.problem or entry.summary) for entry in collections]
    print_table(
        f"{len(rows)} collections (headgate environments --collection NAME)",
        ("collection", "extra", "what it holds"),
        rows,
    )


def _collection_document(entry: AvailableCollection) -> Mapping[str, Any]:
    return {"prefix": entry.prefix, "extra": entry.extra, "summary": entry.summary, "problem": entry.problem}
