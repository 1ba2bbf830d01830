"""Samples as logs of inspect_ai, one per model and environment; written through its own API.

Imports inspect_ai, which is optional and takes a second, so import this module only for such logs.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import polars as pl
from inspect_ai.event import ErrorEvent, Event, ScoreEvent
from inspect_ai.log import (
    EvalError,
    EvalLog,
    EvalMetric,
    EvalSample,
    EvalSpec,
    EvalStats,
    read_eval_log,
    read_eval_log_sample_summaries,
    read_eval_log_samples,
    recompute_metrics,
    write_eval_log,
)
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.scorer import Score, value_to_float

from headgate.core import Sample, checked_name, errors, iso_text, redacted, task_id_of
from headgate.statistics import clustered_mean
from headgate.storage.exchange.formats import Words, conversation_of, is_one_log, kind_of_error, messages_of
from headgate.storage.exchange.windows import Plan, Window
from headgate.storage.manifest import Problem
from headgate.storage.selection import Chosen

OWN: Final = "headgate"
"""Key in a sample's metadata of the stored sample, so that it can be imported unchanged."""

SCORER: Final = "headgate"

_AS_INSPECT_COMPUTES: Final = [{"name": "inspect_ai/mean"}, {"name": "inspect_ai/stderr"}]


class InspectLogs:
    """Writes logs into a folder, or one log into a file. Lives as long as one export."""

    def __init__(self, room: Path, plan: Plan, output: Path) -> None:
        """Start an export; `output` with a suffix `.eval` or `.json` is one log, anything else a folder of `.eval`.

        Raises:
            errors.InvalidInputError: if there is nothing to write, or more than fits into one log.
        """
        self._made = room / "made"
        self._chosen = plan.chosen
        self._single = output.suffix if is_one_log(output) else None
        pairs = {(model, window.environment) for window in plan.windows for model in plan.models}
        plan.require_rows("a log of inspect_ai is of one model in one environment")
        if self._single and (len(pairs) > 1 or len(plan.windows) > 1):
            raise errors.InvalidInputError(
                f"{output} is one log, but these samples make {len(plan.models)} × {len(plan.windows)} logs",
                next_step="Choose with --model and --environment, or name a folder for all of them.",
            )
        if not self._single:
            self._made.mkdir()

    def add(self, window: Window, frame: pl.DataFrame) -> int:
        """Write the logs of a window, one per model; return the number of samples."""
        for (model,), rows in sorted(frame.partition_by(["model"], as_dict=True).items()):
            log = log_of([Sample(**row) for row in rows.iter_rows(named=True)], str(model), window, self._chosen)
            if self._single:
                write_eval_log(log, self._made, format="json" if self._single == ".json" else "eval")
            else:
                # The name has inspect_ai's form, from which its viewer reads time, task and task id.
                stamp = re.sub(r"[:+]", "-", str(log.eval.created))
                task = "".join(c if c.isalnum() or c in ".-" else "-" for c in log.eval.task)
                write_eval_log(log, self._made / f"{stamp}_{task}_{log.eval.task_id}.eval", format="eval")
        return frame.height

    def finish(self) -> None:
        """Do nothing: every log is complete when it is written."""


def log_of(samples: Sequence[Sample], model: str, window: Window, chosen: Chosen) -> EvalLog:
    """Return the log of one model's samples in one environment, with the metrics that inspect_ai itself computes.

    inspect_ai treats logs in one folder with the same task id as retries and shows only the newest: the id depends on
    model, environment, window and selection, so that a later export of the same samples replaces only this one.
    """
    ordered = sorted(samples, key=lambda s: (s.index, s.campaign, s.stage, s.sequence, s.finished_at))
    by_index = itertools.groupby(ordered, key=lambda sample: sample.index)
    epochs = [epoch for _, same in by_index for epoch, _ in enumerate(same, start=1)]
    started, ended = min(s.started_at for s in samples), max(s.finished_at for s in samples)
    ids = sorted({s.index for s in samples})
    name = f"{window.environment}/{model}/{window.label}"
    spec = EvalSpec.model_validate({
        "eval_id": _digest("eval", name, *(s.task_id for s in ordered)),
        "run_id": _digest("run", *(s.task_id for s in ordered)),
        "created": iso_text(started),
        "task": window.environment,
        "task_id": _digest("task", name, *(str(value) for value in chosen.bounds)),
        "task_display_name": window.environment,  # otherwise inspect_ai shows only what follows a slash
        "dataset": {"name": window.environment, "samples": len(ids), "sample_ids": ids, "shuffled": False},
        "model": model,
        "config": {"epochs": max(epochs), "epochs_reducer": ["mean"]},  # readers expect this many
        "scorers": [{"name": SCORER, "metrics": _AS_INSPECT_COMPUTES}],
        "metadata": {"exported_by": OWN, "campaigns": sorted({s.campaign for s in samples})},
    })  # fmt: skip
    usage = _usage(sum(s.prompt_tokens for s in samples), sum(s.completion_tokens for s in samples))
    log = EvalLog(
        status="success",
        eval=spec,
        stats=EvalStats(started_at=iso_text(started), completed_at=iso_text(ended), model_usage={model: usage}),
        samples=[sample_of(sample, epoch) for sample, epoch in zip(ordered, epochs, strict=True)],
    )
    recompute_metrics(log)
    _add_interval(log, ordered)
    return log


def sample_of(sample: Sample, epoch: int) -> EvalSample:
    """Return one sample in inspect_ai's form; the target is empty, since only the environment knows it."""
    words = messages_of(sample.conversation)
    messages: list[ChatMessage] = [
        _MESSAGES.get(word.role, ChatMessageUser)(content=word.content, id=f"{sample.task_id}-{place}")
        for place, word in enumerate(words)
    ]
    answers = [message for message in messages if isinstance(message, ChatMessageAssistant)]
    usage = _usage(sample.prompt_tokens, sample.completion_tokens)
    score = error = None
    if sample.score is not None:
        answer = answers[-1].text if answers else None
        score = Score(value=sample.score, answer=answer, explanation=sample.why or sample.error)
    if not sample.is_scored:
        said = f"{sample.error_kind}: {sample.error or ''}"
        error = EvalError(message=said, traceback=said, traceback_ansi=said)
    return EvalSample(
        id=sample.index,
        epoch=epoch,
        input=list(itertools.takewhile(lambda message: message.role != "assistant", messages)) or "",
        target="",
        messages=messages,
        output=ModelOutput(
            model=sample.model,
            choices=[ChatCompletionChoice(message=answers[-1])] if answers else [],
            usage=usage,
            time=sample.latency_s,
        ),
        scores={SCORER: score} if score is not None else None,
        metadata=_metadata(sample, words),
        model_usage={sample.model: usage},
        started_at=iso_text(sample.started_at),
        completed_at=iso_text(sample.finished_at),
        total_time=sample.latency_s,
        working_time=max(0.0, sample.latency_s - sample.request_wait_s),
        uuid=_digest("sample", sample.task_id),
        events=_events(sample, score, error),
        error=error,
    )


def _events(sample: Sample, score: Score | None, error: EvalError | None) -> list[Event]:
    """Return the sample's final events, the only ones known: a viewer reports a sample without events as incomplete."""
    known: dict[str, Any] = {
        "timestamp": datetime.fromtimestamp(sample.finished_at, UTC),
        "working_start": sample.latency_s,
        "uuid": _digest("end", sample.task_id),
    }
    events: list[Event] = []
    if score is not None:
        events.append(ScoreEvent(score=score, scorer=SCORER, **known))
    if error is not None:
        events.append(ErrorEvent(error=error, **known))
    return events


def _metadata(sample: Sample, words: Sequence[Words]) -> dict[str, Any]:
    own = {field.name: getattr(sample, field.name) for field in fields(Sample) if field.name != "conversation"}
    if conversation_of(words) != sample.conversation:
        own["conversation"] = sample.conversation  # it has a form that the messages do not preserve
    shown = ("campaign", "task_id", "seed", "sequence", "stage", "trace_id", "success")
    return {name: own[name] for name in shown} | {OWN: own}


_MESSAGES: Final[Mapping[str, Callable[..., ChatMessage]]] = {
    "assistant": ChatMessageAssistant,
    "system": ChatMessageSystem,
    "developer": ChatMessageSystem,
    "tool": ChatMessageTool,
}


def _add_interval(log: EvalLog, samples: Sequence[Sample]) -> None:
    """Add the interval of `headgate leaderboard`, which counts tasks instead of samples, to inspect_ai's metrics."""
    scored = [sample for sample in samples if sample.is_scored]
    found = clustered_mean([s.score or 0.0 for s in scored], [s.index for s in scored])
    if found is None or log.results is None or not log.results.scores:
        return
    log.results.scores[0].metrics |= {
        name: EvalMetric(name=name, value=value, metadata={"method": found.method, "tasks": found.tasks})
        for name, value in (("mean_of_samples", found.mean), ("low_95", found.low), ("high_95", found.high))
    }


def _usage(prompt_tokens: int, completion_tokens: int) -> ModelUsage:
    total = prompt_tokens + completion_tokens
    return ModelUsage(input_tokens=prompt_tokens, output_tokens=completion_tokens, total_tokens=total)


def _digest(*parts: str) -> str:
    """Return an id of 22 letters and digits, like inspect_ai's; equal parts give equal ids."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=11).hexdigest()


_NOT_NEEDED: Final = {"store", "events", "timelines", "events_data"}
"""Fields of a sample that make up most of a log, but are not needed for a Headgate sample."""

_NO_LOG: Final = (OSError, ValueError, KeyError, IndexError, TypeError, EOFError, RuntimeError)
_CUT_OFF: Final = (zipfile.BadZipFile, zlib.error, struct.error)

_WORDS_FOR_SCORES: Final = frozenset({"c", "i", "p", "n", "yes", "no", "true", "false"})


class _Refused(Exception):  # noqa: N818 - it ends as a problem, not as an error
    """A sample that cannot be scored; the text says why."""


def samples_of_log(file: Path, *, campaign: str, problems: list[Problem]) -> Iterator[Sample]:
    """Yield the samples of a log, `.eval` or `.json`; one that cannot be scored is added to `problems` instead.

    A sample exported by Headgate is restored unchanged. Any other gets a task from the log's id, its own id and its
    epoch, so that importing the log again gives the same tasks.
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
            next_step="Name a complete .eval or .json log, or a folder of them; `inspect log dump FILE` checks one.",
        ) from error


def _opened(file: Path) -> tuple[EvalLog, Iterator[EvalSample]]:
    """Return a log without samples, and an iterator over its samples; a JSON log is read into memory."""
    if file.suffix == ".json":
        log = read_eval_log(str(file), resolve_attachments=True)
        return log, iter(log.samples or ())
    log = read_eval_log(str(file), header_only=True, format="eval")
    samples = read_eval_log_samples(
        str(file), all_samples_required=False, resolve_attachments=True, format="eval", exclude_fields=_NOT_NEEDED
    )
    return log, samples


def _places(log: EvalLog, file: Path) -> dict[str, int]:
    """Return the index of every sample id: its position in the dataset, or if unknown, among the log's ids."""
    ids: list[Any] = list(log.eval.dataset.sample_ids or ())
    if log.samples is not None:
        there = {str(sample.id): sample.id for sample in log.samples}
    else:
        there = {str(summary.id): summary.id for summary in read_eval_log_sample_summaries(str(file))}
    told = {str(one) for one in ids}
    ids += sorted((one for name, one in there.items() if name not in told), key=lambda one: (isinstance(one, str), one))
    return {str(one): place for place, one in enumerate(ids)}


def _own(sample: EvalSample) -> Sample | None:
    """Return the sample that Headgate exported, None if there is none."""
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
    score = None if failure is not None else _imported_score(sample, log)
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
    """Return the scorer whose score is used: the first in the log's order that scored the sample."""
    if not sample.scores:
        limit = f": it was ended by its {sample.limit.type} limit" if sample.limit else ""
        raise _Refused(f"it has neither a score nor an error{limit}")
    names = [score.name for score in log.results.scores] if log.results else []
    return next((name for name in names if name in sample.scores), next(iter(sample.scores)))


def _imported_score(sample: EvalSample, log: EvalLog) -> float:
    scorer = _scorer(sample, log)
    value = (sample.scores or {})[scorer].value
    try:
        if not (isinstance(value, str) and value.lower() in _WORDS_FOR_SCORES):
            float(value)  # type: ignore[arg-type]  # a list or a mapping is refused
    except (TypeError, ValueError):
        raise _Refused(
            f"its score by {scorer!r} is neither a number nor one of C, I, P, N, yes, no (got {str(value)[:60]!r})"
        ) from None
    score = value_to_float()(value)
    if not 0.0 <= score <= 1.0:
        raise _Refused(f"its score by {scorer!r} must be in [0, 1] (got {value})")
    return score


def _why(sample: EvalSample, log: EvalLog) -> str:
    score = (sample.scores or {})[_scorer(sample, log)]
    return redacted(" ".join((score.explanation or f"{_scorer(sample, log)}: {score.value}").split()), limit_chars=500)


def _times(sample: EvalSample, log: EvalLog) -> tuple[float, float]:
    """Return when the sample began and ended; the log's times if the sample has none."""
    began = sample.started_at or log.stats.started_at or log.eval.created
    ended = sample.completed_at or (log.stats.completed_at if not sample.started_at else "") or began
    return datetime.fromisoformat(began).timestamp(), datetime.fromisoformat(ended).timestamp()


def _nameable(name: str) -> str:
    """Return a name with every character that Headgate's names may not contain replaced by a hyphen."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._:@/+-") else "-" for c in name)
    while ".." in kept:
        kept = kept.replace("..", ".")
    return kept
