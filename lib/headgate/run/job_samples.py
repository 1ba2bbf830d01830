"""Turns a completed job of the job queue into the sample to store; pure and deterministic."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.core import ErrorKind, Sample, TaskId, checked_name, redacted, task_id_of
from headgate.core.errors import InvalidInputError
from headgate.jobqueue.wire import JobOut

if TYPE_CHECKING:
    from headgate.jobqueue.generator import ResultFolder

SCORE_FIELD: Final = "q_score"
"""The field of a result that holds its score, as in result files of the legacy protocol."""

_REVISION: Final = "main"
_NAME_CHARS: Final = 200
_DIGEST_CHARS: Final = 16
_PLAIN: Final = re.compile(rb"[A-Za-z0-9._:/-]")
_NUMBER: Final = re.compile(r"([0-9]{1,15})(?:_template-tro_state\.json)?\Z", re.ASCII)
WHY_CHARS: Final = 600


@dataclass(frozen=True, slots=True)
class JobSampleRules:
    """How the jobs of a queue become samples.

    Attributes:
        queue: name of the job queue; it and the job's id identify a sample, wherever the queue's server is.
        campaign: campaign of the samples.
        score_field: the result's field with the score, a number in [0, 1] or an object with one as `final`; dots
            in the name lead into nested objects.
    """

    queue: str = "main"
    campaign: str = "jobqueue"
    score_field: str = SCORE_FIELD

    def __post_init__(self) -> None:
        checked_name(self.stage, "queue")
        checked_name(self.campaign, "campaign")
        if not self.score_field.strip("."):
            raise InvalidInputError("the score's field must have a name", next_step=f"Name it, as in {SCORE_FIELD}.")

    @property
    def stage(self) -> str:
        """The stage of all samples of the queue."""
        return f"job:{self.queue}"


@dataclass(frozen=True, slots=True)
class _Score:
    """The score in a result, or why there is none."""

    value: float | None
    problem: str = ""


def sample_of_job(job: JobOut, rules: JobSampleRules, server: str = "") -> Sample:
    """Return the sample that a completed job makes.

    The model is the team and the environment the task (`stored_name`). A result without a usable score makes a sample
    without a score, with an environment error: nothing is invented. The id derives from the job's identity, so
    collecting it again gives the same sample.

    Args:
        job: the completed job.
        rules: the rules of its queue.
        server: the policy server of its evaluation (`pool/index`), if known.
    """
    model, environment = model_of_team(job.team), stored_name(job.task)
    result = job.result or {}
    score = _score(result, rules.score_field)
    finished_at = ended_at(job)
    started_at = job.claimed_at or finished_at
    return Sample(
        task_id=task_id_of_job(job, rules),
        campaign=rules.campaign,
        model=model,
        environment=environment,
        sequence=_sequence(rules.queue, job.id),
        index=_index(job.instance),
        seed=whole(result.get("seed")),
        stage=rules.stage,
        score=score.value,
        success=_success(result, score.value),
        why=_why(job, score, rules.score_field, server),
        error_kind=None if score.value is not None else ErrorKind.ENVIRONMENT.value,
        error=None if score.value is not None else score.problem,
        started_at=started_at,
        finished_at=finished_at,
        latency_s=max(0.0, finished_at - started_at),
        queue_wait_s=max(0.0, started_at - job.submitted_at),
        request_wait_s=0.0,
        prompt_tokens=0,
        completion_tokens=0,
        turns=whole(result.get("steps")),
        attempts=job.epoch,
        trace_id=hashlib.blake2b(f"{rules.queue}\0{job.id}\0{job.epoch}".encode(), digest_size=16).hexdigest(),
    )


def task_id_of_job(job: JobOut, rules: JobSampleRules) -> TaskId:
    """Return the id of the sample that a job makes."""
    sequence = _sequence(rules.queue, job.id)
    return task_id_of(model_of_team(job.team), stored_name(job.task), sequence, rules.stage, rules.campaign)


def ended_at(job: JobOut) -> float:
    """Return when a job was completed; for one that another queue completed, only when it was submitted is known."""
    return job.finished_at or job.submitted_at


def with_result_of_file(job: JobOut, results: ResultFolder) -> JobOut:
    """Return a job that was completed without a result, as in the legacy protocol, with the score in its file.

    A job that has a result, or has no file with a score, is returned unchanged.
    """
    if job.result:
        return job
    found = results.evaluation(job.team, job.task, _index(job.instance))
    return job if found.q_score is None else job.model_copy(update={"result": {SCORE_FIELD: found.q_score}})


def model_of_team(team: str) -> str:
    """Return the key of the model to which a team's samples belong."""
    return f"{stored_name(team)}@{_REVISION}"


def stored_name(name: str) -> str:
    """Return the name of a team or task in a form that samples allow; an allowed name is unchanged.

    Letters, digits and `. _ : / -` stay; each byte of anything else, and a dot after a dot, becomes `+` and two hex
    digits. A name that does not begin with a letter or digit gets the prefix `0++`. Different names stay different; a
    name that grows beyond 200 characters ends with `++` and a hash in place of its rest.
    """
    written: list[str] = []
    for byte in name.encode():
        character = bytes((byte,))
        is_plain = _PLAIN.match(character) and not (character == b"." and written and written[-1] == ".")
        written.append(character.decode() if is_plain else f"+{byte:02X}")
    text = "".join(written)
    if not (text[:1].isascii() and text[:1].isalnum()):
        text = f"0++{text}"
    if len(text) <= _NAME_CHARS:
        return text
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return f"{text[: _NAME_CHARS - _DIGEST_CHARS - 2]}++{digest}"


def _sequence(queue: str, job_id: str) -> int:
    """Return a 53-bit number that is unique to this job of the queue.

    Summaries identify a sample by campaign, model, environment, stage and this number; a job's position in its queue
    would not do, as it belongs to another job once the queue is recreated.
    """
    digest = hashlib.blake2b(f"{queue}\0{job_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 11


def _score(result: Mapping[str, Any], field: str) -> _Score:
    found = _found(result, field)
    if isinstance(found, Mapping):
        found = found.get("final")
    if found is None:
        return _Score(None, f"the result has no {field}")
    if isinstance(found, bool) or not isinstance(found, int | float):
        return _Score(None, f"{field} of the result must be a number (got {_shown(found)})")
    if not 0 <= found <= 1:
        return _Score(None, f"{field} of the result must be in [0, 1] (got {_shown(found)})")
    return _Score(float(found))


def _found(result: Mapping[str, Any], field: str) -> object:
    if field in result:
        return result[field]
    value: object = result
    for name in field.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _success(result: Mapping[str, Any], score: float | None) -> bool:
    if score is None:
        return False
    said = result.get("success")
    return said if isinstance(said, bool) else score == 1.0


def _why(job: JobOut, score: _Score, field: str, server: str) -> str:
    """Return the origin of a score, in one line."""
    parts = [f"{field} {score.value:.6g}" if score.value is not None else score.problem, f"job {job.id}"]
    told = {"instance": job.instance, "worker": job.worker, "server": server, "result": job.result_ref}
    parts += [f"{what} {value}" for what, value in told.items() if value]
    if job.checksum:
        parts.append(job.checksum)
    return redacted(" ".join("; ".join(parts).split()), limit_chars=WHY_CHARS)


def _index(instance: str) -> int:
    """Return the number at the end of an instance's name, 0 if there is none."""
    matched = _NUMBER.search(instance)
    return int(matched[1]) if matched else 0


def whole(value: object) -> int:
    """Return a count from a result; 0 for any other value."""
    is_whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return int(value) if is_whole and isinstance(value, int) else 0


def _shown(value: object) -> str:
    return redacted(repr(value), limit_chars=60)
