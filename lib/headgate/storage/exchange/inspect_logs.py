"""Samples as logs of inspect_ai, one per model and environment; written through its own API.

Imports inspect_ai, which is optional and takes a second: only what exports such logs imports this.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
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
from inspect_ai.scorer import Score

from headgate.core import Sample, errors
from headgate.statistics import clustered_mean
from headgate.storage.exchange.chosen import Chosen, Plan, Window
from headgate.storage.exchange.formats import Words, conversation_of, is_one_log, messages_of

OWN: Final = "headgate"
"""Key in a sample's metadata under which the stored sample stands, so that it can be imported as it was."""

SCORER: Final = "headgate"

_AS_INSPECT_COMPUTES: Final = [{"name": "inspect_ai/mean"}, {"name": "inspect_ai/stderr"}]


class InspectLogs:
    """Logs in a folder, or the one log that a file holds. Lives as long as one export."""

    def __init__(self, room: Path, plan: Plan, output: Path) -> None:
        """Begin an export; `output` with a suffix `.eval` or `.json` is one log, anything else a folder of `.eval`.

        Raises:
            errors.InvalidInputError: if there is nothing to write, or more than the one log has room for.
        """
        self._made = room / "made"
        self._chosen = plan.chosen
        self._single = output.suffix if is_one_log(output) else None
        pairs = {(model, window.environment) for window in plan.windows for model in plan.models}
        plan.require_rows("a log of inspect_ai is of one model in one environment")
        if self._single and (len(pairs) > 1 or len(plan.windows) > 1):
            raise errors.InvalidInputError(
                f"{output} is one log, and these samples make {len(plan.models)} × {len(plan.windows)} logs",
                next_step="Choose with --model and --environment, or name a folder, which takes them all.",
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
                write_eval_log(log, self._made / _file_name(log), format="eval")
        return frame.height

    def finish(self) -> None:
        """Do nothing: every log is whole when it is written."""


def log_of(samples: Sequence[Sample], model: str, window: Window, chosen: Chosen) -> EvalLog:
    """Return the log of one model's samples in one environment, with the metrics that inspect_ai itself computes.

    inspect_ai takes logs in one folder that share a task id for retries of one another and shows the newest alone: the
    id is of model, environment, window and what was chosen, so that a later export of the same replaces this one only.
    """
    ordered = sorted(samples, key=lambda s: (s.index, s.campaign, s.stage, s.sequence, s.finished_at))
    epochs = list(_epochs(ordered))
    started, ended = min(s.started_at for s in samples), max(s.finished_at for s in samples)
    ids = sorted({s.index for s in samples})
    name = f"{window.environment}/{model}/{window.label}"
    spec = EvalSpec.model_validate({
        "eval_id": _digest("eval", name, *(s.task_id for s in ordered)),
        "run_id": _digest("run", *(s.task_id for s in ordered)),
        "created": _iso(started),
        "task": window.environment,
        "task_id": _digest("task", name, *(str(value) for value in chosen.bounds)),
        "task_display_name": window.environment,  # else inspect_ai shows what follows a slash only
        "dataset": {"name": window.environment, "samples": len(ids), "sample_ids": ids, "shuffled": False},
        "model": model,
        "config": {"epochs": max(epochs), "epochs_reducer": ["mean"]},  # readers look for so many
        "scorers": [{"name": SCORER, "metrics": _AS_INSPECT_COMPUTES}],
        "metadata": {"exported_by": OWN, "campaigns": sorted({s.campaign for s in samples})},
    })  # fmt: skip
    usage = _usage(sum(s.prompt_tokens for s in samples), sum(s.completion_tokens for s in samples))
    log = EvalLog(
        status="success",
        eval=spec,
        stats=EvalStats(started_at=_iso(started), completed_at=_iso(ended), model_usage={model: usage}),
        samples=[sample_of(sample, epoch) for sample, epoch in zip(ordered, epochs, strict=True)],
    )
    recompute_metrics(log)
    _add_interval(log, ordered)
    return log


def sample_of(sample: Sample, epoch: int) -> EvalSample:
    """Return one sample as inspect_ai has it; the target is empty, as only the environment knows it."""
    words = messages_of(sample.conversation)
    messages = [_message(word, f"{sample.task_id}-{place}") for place, word in enumerate(words)]
    answers = [message for message in messages if isinstance(message, ChatMessageAssistant)]
    usage = _usage(sample.prompt_tokens, sample.completion_tokens)
    score, error = _score(sample, answers[-1].text if answers else None), _error(sample)
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
        started_at=_iso(sample.started_at),
        completed_at=_iso(sample.finished_at),
        total_time=sample.latency_s,
        working_time=max(0.0, sample.latency_s - sample.request_wait_s),
        uuid=_digest("sample", sample.task_id),
        events=_events(sample, score, error),
        error=error,
    )


def _score(sample: Sample, answer: str | None) -> Score | None:
    if sample.score is None:
        return None
    return Score(value=sample.score, answer=answer, explanation=sample.why or sample.error)


def _error(sample: Sample) -> EvalError | None:
    if sample.is_scored:
        return None
    said = f"{sample.error_kind}: {sample.error or ''}"
    return EvalError(message=said, traceback=said, traceback_ansi=said)


def _events(sample: Sample, score: Score | None, error: EvalError | None) -> list[Event]:
    """Return how the sample ended, which is all that is known of its course: a viewer calls none at all a loss."""
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
        own["conversation"] = sample.conversation  # of another form than the messages give again
    shown = ("campaign", "task_id", "seed", "sequence", "stage", "trace_id", "success")
    return {name: own[name] for name in shown} | {OWN: own}


def _message(words: Words, message_id: str) -> ChatMessage:
    match words.role:
        case "assistant":
            return ChatMessageAssistant(content=words.content, id=message_id)
        case "system" | "developer":
            return ChatMessageSystem(content=words.content, id=message_id)
        case "tool":
            return ChatMessageTool(content=words.content, id=message_id)
        case _:
            return ChatMessageUser(content=words.content, id=message_id)


def _epochs(ordered: Sequence[Sample]) -> Iterator[int]:
    """Yield which time it is that an index was sampled, from 1, for samples in the order of their index."""
    for _, same in itertools.groupby(ordered, key=lambda sample: sample.index):
        yield from range(1, len(list(same)) + 1)


def _add_interval(log: EvalLog, samples: Sequence[Sample]) -> None:
    """Put the interval of `headgate leaderboard`, which counts tasks and not samples, beside inspect_ai's metrics."""
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


def _file_name(log: EvalLog) -> str:
    """Return a name as inspect_ai gives: its viewer reads time, task and task id from it."""
    stamp = re.sub(r"[:+]", "-", str(log.eval.created))
    task = "".join(c if c.isalnum() or c in ".-" else "-" for c in log.eval.task)
    return f"{stamp}_{task}_{log.eval.task_id}.eval"


def _digest(*parts: str) -> str:
    """Return an id of 22 letters and digits, as inspect_ai's are; equal parts give equal ids."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=11).hexdigest()


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
