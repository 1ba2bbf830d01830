"""The summary in Affine's format (`schema_version` 1.0.0)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean
from typing import Any, Final

from headgate.storage.exchange.affine_results import Miner, miners_of
from headgate.storage.summary import PairSummary, Summary

_SCHEMA_VERSION: Final = "1.0.0"


def affine_summary(summary: Summary, *, block: int = 0, miners: Mapping[str, Miner] | None = None) -> dict[str, Any]:
    """Return the summary as Affine writes `weights/summary-{block}.json`.

    Headgate pays nobody: `weight` is 0 and `layer_points` is empty. A miner is eligible when it has scored samples in
    every environment; the winner of an environment is the one with the highest mean, the first by name among equals.
    """
    scored = [pair for pair in summary.pairs if pair.count]
    environments = sorted({pair.environment for pair in scored})
    by_model: defaultdict[str, dict[str, PairSummary]] = defaultdict(dict)
    for pair in scored:
        by_model[pair.model][pair.environment] = pair
    known = miners_of(list(by_model), miners)
    winners = {name: _winner(name, by_model) for name in environments}
    entries = {
        known[model].hotkey: _entry(model, known[model], pairs, environments, winners)
        for model, pairs in sorted(by_model.items())
    }
    eligible = sum(entry["eligible"] for entry in entries.values())
    return {
        "schema_version": _SCHEMA_VERSION,
        "timestamp": int(summary.generated_at),
        "block": block,
        "data": {
            "header": ["UID", "Model", "Rev", *environments, "Total"],
            "rows": [_row(entry, environments) for entry in entries.values()],
            "miners": entries,
            "stats": {
                "eligible_count": eligible,
                "active_count": len(entries),
                "queryable_count": len(entries),
                "total_miners": len(entries),
            },
            "env_winners": {name: known[model].hotkey for name, model in winners.items()},
            "environments": environments,
        },
    }


def _winner(environment: str, by_model: Mapping[str, Mapping[str, PairSummary]]) -> str:
    there = sorted(model for model, pairs in by_model.items() if environment in pairs)
    return max(there, key=lambda model: by_model[model][environment].mean_score or 0.0)


def _entry(
    model: str,
    miner: Miner,
    pairs: Mapping[str, PairSummary],
    environments: list[str],
    winners: Mapping[str, str],
) -> dict[str, Any]:
    name, _, revision = model.rpartition("@")
    return {
        "uid": miner.uid,
        "hotkey": miner.hotkey,
        "model": name,
        "revision": revision,
        "environments": {
            environment: {
                "accuracy": pair.mean_score,
                "count": pair.count,
                "count_24h": pair.count_24h,
                "confidence_interval": {"lower": pair.interval.low, "upper": pair.interval.high},
                "is_winner": winners[environment] == model,
            }
            for environment, pair in sorted(pairs.items())
        },
        "layer_points": {},
        "total_score": fmean(pair.mean_score or 0.0 for pair in pairs.values()),
        "eligible": len(pairs) == len(environments),
        "first_block": 0,
        "weight": 0.0,
    }


def _row(entry: Mapping[str, Any], environments: list[str]) -> list[Any]:
    found = entry["environments"]
    scores = [found[name]["accuracy"] if name in found else None for name in environments]
    return [entry["uid"], entry["model"], entry["revision"], *scores, entry["total_score"]]
