"""`headgate:explain`: explain an incident in your own words. An open question, graded by a judge with a rubric."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.core import Message
from headgate.environments import BaselineKind, EnvironmentSpec, ForJudge, Judgement, Score, failed
from headgate.environments.answers import without_thinking
from headgate.environments.judge_questions import is_echo, judge_question, mean_verdict, read_judgement

PARTS: Final = (
    "backup server", "billing service", "cache cluster", "certificate store", "chat gateway", "chart renderer",
    "device registry", "document index", "event bus", "export job", "feature flags", "file share", "fraud filter",
    "image resizer", "invoice printer", "general ledger", "license server", "login service", "log archive",
    "mail relay", "map server", "message broker", "metrics store", "name server", "order database", "payment gateway",
    "price feed", "report builder", "route planner", "search index", "session store", "sign-up page",
    "stock ledger", "tax calculator", "ticket desk", "time server", "token issuer", "translation service",
    "video encoder", "warehouse terminal",
)  # fmt: skip
"""No name is part of another."""

FAULTS: Final = (
    "ran out of disk space", "lost its network link", "rejected every password", "answered ten times slower",
    "restarted every minute", "refused new connections", "served outdated records", "ran out of memory",
    "presented an expired certificate", "dropped half of its messages", "stopped at a locked file",
    "could not resolve any name", "wrote empty files", "lost its configuration", "returned only errors",
    "counted every entry twice",
)  # fmt: skip

ANSWER_CHARS: Final = 4_000
"""The question asks for 120 words; a longer answer is not an explanation, and costs tokens at every judge."""

PASS_MARK: Final = 0.7
"""An answer is a success if the mean of its judgements is at least this."""

_QUESTIONS: Final = 3
"""Number of wordings of one question to a judge: each has the rubric's points in another order."""

_EVENT: Final = re.compile(r"^- (\d\d:\d\d) The (.+)\.$", re.MULTILINE)

SPEC: Final = EnvironmentSpec(
    name="headgate:explain",
    summary="Explain an incident: root cause, every step from it, and what is unrelated (graded by a judge)",
    daily_rate=100.0,
    data_length=1_000_000,
    reply_chars=100_000,
    licence="Apache-2.0",
    source="Headgate; incidents are generated from the index",
    chance_score=0.0004,
    needs_judge=True,
)


class ExplainEpisode:
    """One question and one answer. Answers that are worthless without any judgement are scored here."""

    def __init__(self, task: Incident, seed: int) -> None:
        self._task = task
        self._seed = seed
        self._question = question_of(task)
        self.opening = (Message("user", self._question),)

    async def answer(self, reply: str) -> Score | ForJudge:
        """Return the questions to judges about `reply`, or the score of a reply that is empty, huge or a mere echo."""
        answer = without_thinking(reply).strip()
        if not re.search(r"\w", answer):
            return failed("the answer is empty")
        if len(answer) > ANSWER_CHARS:
            return failed(f"the answer has {len(answer)} characters, at most {ANSWER_CHARS} are judged")
        if is_echo(answer, "\n".join(self._task.notes)):
            return failed("the answer repeats the notes")
        return ForJudge(tuple(self._asked(answer, turn) for turn in range(_QUESTIONS)))

    async def close(self) -> None:
        """Free nothing."""

    def _asked(self, answer: str, turn: int) -> tuple[Message, ...]:
        return judge_question(
            self._question,
            reference_of(self._task),
            points_of(self._task),
            answer,
            secret=f"{SPEC.name}/{self._seed}",
            turned_by=turn,
        )


class Explain:
    """Incidents to explain. Stateless; implements `JudgedEnvironment`."""

    spec: Final = SPEC

    async def open(self, index: int, seed: int) -> ExplainEpisode:
        """Begin task `index`; all of it is drawn from `seed`, which the index determines."""
        del index
        return ExplainEpisode(incident(seed), seed)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply with random parts and faults, with the events in order of time (`greedy`), or with the reference."""
        del index
        if kind == "solver":
            return reference_of(incident(seed))
        if kind == "greedy":
            return _by_time(conversation[0].content)
        blamed, *others = (f"the {rng.choice(PARTS)} {rng.choice(FAULTS)}" for _ in range(3))
        return f"The root cause: {blamed}. Then {' and '.join(others)}."

    def judgement(self, reply: str) -> Judgement | None:
        """Return the judgement in a judge's reply, or None if it has none."""
        return read_judgement(reply)

    def verdict(self, judgements: Sequence[Judgement]) -> Score:
        """Return the mean of the judgements, which is a success if it is at least `PASS_MARK`."""
        return mean_verdict(judgements, pass_mark=PASS_MARK)


def explain() -> Explain:
    """Return `headgate:explain`."""
    return Explain()


def question_of(task: Incident) -> str:
    """Return the question to the model."""
    complaint = task.chain[-1]
    notes = "\n".join(f"- {note}" for note in task.notes)
    return (
        f"Notes on an incident, out of order:\n{notes}\n\n"
        f"Explain in at most 120 words why the {complaint.part} {complaint.fault}. Name the root cause, every step "
        f"from it to the {complaint.part}, and the event in the notes that has nothing to do with it. Use the words of "
        "the notes for parts and failures."
    )


def reference_of(task: Incident) -> str:
    """Return an answer that meets every point."""
    root, *steps = task.chain
    told = [f"The root cause is that the {root.part} {root.fault}."]
    for before, step in zip(task.chain, steps, strict=False):
        told.append(f"The {step.part} needs the {before.part}, so it {step.fault}.")
    told.append(f"That the {task.unrelated.part} {task.unrelated.fault} has nothing to do with it.")
    return " ".join(told)


def points_of(task: Incident) -> tuple[str, ...]:
    """Return the rubric."""
    root, *steps = task.chain
    points = [f'names as the "root cause" that the "{root.part}" "{root.fault}"']
    for before, step in zip(task.chain, steps, strict=False):
        points.append(f'says that the "{step.part}" "{step.fault}" because it needs the "{before.part}"')
    other = task.unrelated
    points.append(f'says that the "{other.part}" has "nothing to do" with it')
    return tuple(points)


def _by_time(question: str) -> str:
    """Return the events in order of time, the first as the cause of all the others: wrong if that one is unrelated."""
    events = [said for _, said in sorted(_EVENT.findall(question))]
    told = [f"The root cause is that the {events[0]}."]
    told += [f"Because the {before}, the {after}." for before, after in itertools.pairwise(events)]
    return " ".join(told)


@dataclass(frozen=True, slots=True)
class Event:
    """A part and what happened to it, at a minute of the day."""

    part: str
    fault: str
    minute: int

    def __str__(self) -> str:
        return f"{self.minute // 60:02d}:{self.minute % 60:02d} The {self.part} {self.fault}."


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident.

    Attributes:
        chain: the root cause first, the complaint last; each part needs the one before it.
        unrelated: an event that has nothing to do with the complaint.
        needs: pairs (part, part that it needs): those of the chain, and others.
        notes: all of the above as lines, in random order.
    """

    chain: tuple[Event, ...]
    unrelated: Event
    needs: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def incident(seed: int) -> Incident:
    """Return the incident of a seed; the same on every machine."""
    rng = random.Random(f"incident {seed}")
    length = rng.randint(3, 5)
    parts = rng.sample(PARTS, length + 4)
    faults = rng.sample(FAULTS, length + 1)
    chained, (unrelated, *bystanders) = parts[:length], parts[length:]
    minutes = sorted(rng.sample(range(8 * 60, 18 * 60), length + 1))
    # Anywhere but last, so that neither the first event nor a part's mere name gives away the root cause.
    extra = minutes.pop(rng.randrange(length))
    chain = tuple(Event(p, f, m) for p, f, m in zip(chained, faults[:length], minutes, strict=True))
    other = Event(unrelated, faults[length], extra)
    needs = [(chained[n + 1], chained[n]) for n in range(length - 1)]
    needs += [(bystanders[0], unrelated), (bystanders[1], bystanders[2]), (bystanders[2], chained[-1])]
    notes = [f"The {part} needs the {needed}." for part, needed in needs] + [str(event) for event in (*chain, other)]
    rng.shuffle(notes)
    return Incident(chain, other, tuple(needs), tuple(notes))
