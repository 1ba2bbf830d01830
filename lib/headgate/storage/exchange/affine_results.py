"""Results in the format of Affine's runner: a shard is a JSON array of result objects, one per sample.

Affine knows models as miners with a uid and a hotkey. `Miner` maps a model's key to them; without a mapping the key
itself serves as hotkey and the rank among the exported models as uid. Results are not signed: `signature` and the
signer's `hotkey` stay empty, as Headgate holds no wallet.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import orjson

from headgate.core import Sample, checked_name, errors, json_value, redacted, task_id_of
from headgate.storage.exchange.formats import kind_of_error

_OWN: Final = "headgate"
"""Key in a result's `extra` for fields that the format lacks."""


@dataclass(frozen=True, slots=True)
class Miner:
    """A model as Affine names it."""

    uid: int
    hotkey: str


def miners_of(models: Sequence[str], known: Mapping[str, Miner] | None = None) -> dict[str, Miner]:
    """Return a miner for every model key: the known one, or its rank as uid and the key as hotkey."""
    return {key: (known or {}).get(key) or Miner(rank, key) for rank, key in enumerate(sorted(models))}


def affine_result(sample: Sample, miner: Miner) -> dict[str, Any]:
    """Return the sample as a result object; `sample_of_result` gives the same sample back."""
    name, _, revision = sample.model.rpartition("@")
    own = {field.name: getattr(sample, field.name) for field in fields(Sample) if field.name != "conversation"}
    return {
        "version": "0.0.0",
        "signature": "",
        "hotkey": "",
        "miner": {
            "uid": miner.uid,
            "hotkey": miner.hotkey,
            "model": name,
            "revision": revision,
            "block": None,
            "chute": {},
            "slug": None,
            "weights_shas": [],
        },
        "env": sample.environment,
        "score": sample.score if sample.score is not None else 0.0,
        "latency_seconds": sample.latency_s,
        "success": sample.success,
        "error": None if sample.is_scored else f"{sample.error_kind}: {sample.error or ''}",
        "extra": {"request": {"seed": sample.seed}, "conversation": sample.conversation, _OWN: own},
        "timestamp": sample.finished_at,
        "task_id": sample.index,
    }


def samples_of_shard(data: bytes, *, shard: str, campaign: str) -> Iterator[Sample]:
    """Yield the samples of a result shard, in its order.

    A result of another program has no Headgate task. It gets one from the campaign, the shard's name and its position
    in the shard, which only grows at its end: importing a shard again, grown or not, gives the same ids.
    """
    try:
        results = json_value(data, most_values=2**23, halves="replaced")  # 100,000 results with conversations
    except orjson.JSONDecodeError as error:
        raise errors.InvalidInputError(f"shard {shard} is not JSON: {error}") from error
    if not isinstance(results, list):
        raise errors.InvalidInputError(f"shard {shard} is not an array of results (got {type(results).__name__})")
    stage = checked_name("seed:" + re.sub(r"[^A-Za-z0-9._-]|\.\.+", "-", shard)[:150], "shard name")
    for place, result in enumerate(results):
        try:
            yield sample_of_result(result, stage=stage, place=place, campaign=campaign)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise errors.InvalidInputError(
                f"entry {place} of shard {shard} is not a result: {error!r}",
                next_step="Remove the entry; results in Affine's first format (challenge, response) are not supported.",
            ) from error


def sample_of_result(result: Mapping[str, Any], *, stage: str, place: int, campaign: str) -> Sample:
    """Return the sample in a result object; raises KeyError, TypeError or ValueError if it holds none."""
    extra = result.get("extra") or {}
    if _OWN in extra:
        return Sample(**extra[_OWN], conversation=extra["conversation"])
    miner = result["miner"]
    model = f"{checked_name(miner['model'], 'model name')}@{miner.get('revision') or 'main'}"
    environment, error = str(result["env"]), result.get("error")
    task_id = task_id_of(model, environment, place, stage, campaign)
    finished_at, latency_s = float(result["timestamp"]), float(result["latency_seconds"])
    conversation = extra.get("conversation") or ""
    return Sample(
        task_id=task_id,
        campaign=campaign,
        model=model,
        environment=environment,
        sequence=place,
        index=_whole(result.get("task_id")),
        seed=_whole((extra.get("request") or {}).get("seed")),
        stage=stage,
        # With an error, Affine writes a score of 0, although nothing was scored.
        score=None if error else float(result["score"]),
        success=bool(result["success"]) and not error,
        why="" if error else "imported from a result of Affine's runner",
        error_kind=kind_of_error(error).value if error else None,
        error=redacted(str(error)) if error else None,
        started_at=finished_at - latency_s,
        finished_at=finished_at,
        latency_s=latency_s,
        queue_wait_s=0.0,
        request_wait_s=0.0,
        prompt_tokens=0,
        completion_tokens=0,
        turns=0 if error else 1,
        attempts=1,
        trace_id=hashlib.blake2b(task_id.encode(), digest_size=16).hexdigest(),
        conversation=conversation if isinstance(conversation, str) else orjson.dumps(conversation).decode(),
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
