"""Logs of inspect_ai as samples: what it scored is taken, what it could not score is told.

Imports inspect_ai, which is optional and takes a second: only what imports such logs imports this.
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from inspect_ai.log import (
    EvalLog,
    EvalSample,
    read_eval_log,
    read_eval_log_sample_summaries,
    read_eval_log_samples,
)
from inspect_ai.scorer import value_to_float

from headgate.core import Sample, checked_name, errors, redacted, task_id_of
from headgate.storage.exchange.formats import Words, conversation_of, kind_of_error
from headgate.storage.exchange.inspect_logs import OWN
from headgate.storage.visibility import Problem

_NOT_NEEDED: Final = {"store", "events", "timelines", "events_data"}
"""Fields of a sample that are most of a log and nothing of a sample of ours."""

_NO_LOG: Final = (OSError, ValueError, KeyError, IndexError, TypeError, EOFError, RuntimeError)
_CUT_OFF: Final = (zipfile.BadZipFile, zlib.error, struct.error)

_WORDS_FOR_SCORES: Final = frozenset({"c", "i", "p", "n", "yes", "no", "true", "false"})


class _Refused(Exception):  # noqa: N818 - it ends as a problem, not as an error
    """A sample that has no score of ours; the text says why."""


def samples_of_log(file: Path, *, campaign: str, problems: list[Problem]) -> Iterator[Sample]:
    """Yield the samples of a log, `.eval` or `.json`; one that cannot be scored is added to `problems` instead.

    A sample of an export of ours comes back as it was. Any other gets a task from the log's id, its own id and its
    epoch, so that importing the log again gives the same tasks.

    Raises:
        errors.InvalidInputError: if it is no log, or is cut off.
    """
    try:
        log, found = _opened(file)
        places = _places(log, file)
        for sample in found:
            try:
                yield _own(sample) or _foreign(sample, log, places, campaign)
            except _Refused as refused:
                problems.append(Problem(f"{file}, sample {sample.id}, epoch {sample.epoch}", str(refused)))
    except errors.HeadgateError:
        raise
    except (*_NO_LOG, *_CUT_OFF) as error:
        raise errors.InvalidInputError(
            f"{file} is not a log of inspect_ai, or is cut off: {(str(error) or repr(error)).splitlines()[0]}",
            next_step="Name a whole .eval or .json log, or a folder of them; `inspect log dump FILE` tries one.",
        ) from error


def _opened(file: Path) -> tuple[EvalLog, Iterator[EvalSample]]:
    """Return a log without samples, and its samples one by one; of a JSON log all are in memory."""
    if file.suffix == ".json":
        log = read_eval_log(str(file), resolve_attachments=True)
        return log, iter(log.samples or ())
    log = read_eval_log(str(file), header_only=True, format="eval")
    samples = read_eval_log_samples(
        str(file), all_samples_required=False, resolve_attachments=True, format="eval", exclude_fields=_NOT_NEEDED
    )
    return log, samples


def _places(log: EvalLog, file: Path) -> dict[str, int]:
    """Return the index of every sample id: its place in the dataset, or among the log's ids where that is not told."""
    ids: list[Any] = list(log.eval.dataset.sample_ids or ())
    if log.samples is not None:
        there = {str(sample.id): sample.id for sample in log.samples}
    else:
        there = {str(summary.id): summary.id for summary in read_eval_log_sample_summaries(str(file))}
    told = {str(one) for one in ids}
    ids += sorted((one for name, one in there.items() if name not in told), key=lambda one: (isinstance(one, str), one))
    return {str(one): place for place, one in enumerate(ids)}


def _own(sample: EvalSample) -> Sample | None:
    """Return the sample that an export of ours put there, None if it did not."""
    own = (sample.metadata or {}).get(OWN)
    if not isinstance(own, dict) or "task_id" not in own:
        return None
    said = [Words(message.role, message.text) for message in sample.messages]
    stored: dict[str, Any] = {"conversation": conversation_of(said)} | own
    try:
        return Sample(**stored)
    except TypeError as error:
        raise _Refused(f"its metadata under {OWN!r} are not a sample: {error}") from None


def _foreign(sample: EvalSample, log: EvalLog, places: Mapping[str, int], campaign: str) -> Sample:
    spec = log.eval
    environment = checked_name("inspect:" + _nameable(spec.task), "task")
    model = checked_name(_nameable(spec.model), "model") + "@main"
    stage = checked_name("inspect:" + _nameable(spec.eval_id or spec.run_id), "id of the log")
    index = places[str(sample.id)]
    failure = sample.error.message if sample.error else None
    score = None if failure is not None else _score(sample, log)
    task_id = task_id_of(model, environment, sample.epoch, f"{stage}/{sample.id}", campaign)
    started_at, finished_at = _times(sample, log)
    latency_s = float(sample.total_time) if sample.total_time is not None else max(0.0, finished_at - started_at)
    usage = list((sample.model_usage or {}).values())
    prompts = (u.input_tokens + (u.input_tokens_cache_read or 0) + (u.input_tokens_cache_write or 0) for u in usage)
    turns = sum(message.role == "assistant" for message in sample.messages)
    return Sample(
        task_id=task_id,
        campaign=campaign,
        model=model,
        environment=environment,
        sequence=(sample.epoch - 1) * len(places) + index,
        index=index,
        seed=0,
        stage=stage,
        score=score,
        success=score is not None and score >= 1.0,
        why="" if failure is not None else _why(sample, log),
        error_kind=kind_of_error(failure).value if failure is not None else None,
        error=redacted(failure) if failure is not None else None,
        started_at=started_at,
        finished_at=finished_at,
        latency_s=latency_s,
        queue_wait_s=0.0,
        request_wait_s=max(0.0, latency_s - sample.working_time) if sample.working_time is not None else 0.0,
        prompt_tokens=sum(prompts),
        completion_tokens=sum(u.output_tokens for u in usage),
        turns=turns,
        attempts=turns + len(sample.error_retries or ()),
        trace_id=hashlib.blake2b(task_id.encode(), digest_size=16).hexdigest(),
        conversation=conversation_of([Words(message.role, message.text) for message in sample.messages]),
    )


def _scorer(sample: EvalSample, log: EvalLog) -> str:
    """Return the scorer whose score is taken: the log's first of those that scored the sample."""
    if not sample.scores:
        limit = f": it was ended by its {sample.limit.type} limit" if sample.limit else ""
        raise _Refused(f"it has neither a score nor an error{limit}")
    names = [score.name for score in log.results.scores] if log.results else []
    return next((name for name in names if name in sample.scores), next(iter(sample.scores)))


def _score(sample: EvalSample, log: EvalLog) -> float:
    scorer = _scorer(sample, log)
    value = (sample.scores or {})[scorer].value
    is_number = isinstance(value, int | float) or (isinstance(value, str) and _is_number(value))
    if not is_number and not (isinstance(value, str) and value.lower() in _WORDS_FOR_SCORES):
        raise _Refused(
            f"its score by {scorer!r} is neither a number nor one of C, I, P, N, yes, no (got {str(value)[:60]!r})"
        )
    score = value_to_float()(value)
    if not 0.0 <= score <= 1.0:
        raise _Refused(f"its score by {scorer!r} must be in [0, 1] (got {value})")
    return score


def _why(sample: EvalSample, log: EvalLog) -> str:
    score = (sample.scores or {})[_scorer(sample, log)]
    return redacted(" ".join((score.explanation or f"{_scorer(sample, log)}: {score.value}").split()), limit_chars=500)


def _times(sample: EvalSample, log: EvalLog) -> tuple[float, float]:
    """Return when the sample began and ended; the log's own times where the sample has none."""
    began = sample.started_at or log.stats.started_at or log.eval.created
    ended = sample.completed_at or (log.stats.completed_at if not sample.started_at else "") or began
    return datetime.fromisoformat(began).timestamp(), datetime.fromisoformat(ended).timestamp()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _nameable(name: str) -> str:
    """Return a name with what no name of ours may hold as a hyphen."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._:@/+-") else "-" for c in name)
    while ".." in kept:
        kept = kept.replace("..", ".")
    return kept
