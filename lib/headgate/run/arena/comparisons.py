"""Comparisons as a judged run handles them: one environment per opponent, stored answers, both orders."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.config import Settings
from headgate.core import Chat, ChatReply, Message, Model, Task, seed_of
from headgate.core.errors import InvalidInputError
from headgate.core.events import Emit
from headgate.environments import (
    BaselineKind,
    Continue,
    Environment,
    EnvironmentSpec,
    ForJudge,
    JudgedEnvironment,
    Judgement,
    Score,
)
from headgate.environments.pairwise import PAIR_REMINDER, pair_question, points_of_task, read_preference
from headgate.environments.rubric import Rubric
from headgate.run.arena.answers import Answer, Answers
from headgate.run.arena.records import comparison_environment, judge_of_stage, judged_note, stage_of, stages_of
from headgate.run.dispatch import ROLLOUT
from headgate.run.plan import ChatSource
from headgate.storage import SampleStore


async def shown_judge(settings: Settings, kept: SampleStore, rubric: str) -> tuple[Model, str]:
    """Return the judge whose comparisons to show, and the stage that they are stored under. The judge cannot be asked.

    Args:
        settings: may name the judge; its address is not needed.
        kept: the comparisons.
        rubric: label of the rubric, empty for none.

    Raises:
        InvalidInputError: if no judge is named, and the campaign has comparisons by none or by several.
        StoreError: if the comparisons cannot be read.
    """
    if settings.judge_model:
        return _judge(settings.judge_model), stage_of(settings.judge_model, rubric)
    rows = (await kept.scan(columns=["campaign", "stage"])).frame
    stages = [stage for stage in stages_of(rows, settings.campaign) if not rubric or stage.endswith(f"/{rubric}")]
    if not stages:
        raise InvalidInputError(
            f"the store has no comparisons of campaign {settings.campaign!r}" + " by this rubric" * bool(rubric),
            next_step="Give --judge-model and --judge-url, and leave --comparisons 0 out, to have some made.",
        )
    judges = [judge_of_stage(stage) for stage in stages]
    if len(stages) > 1:
        raise InvalidInputError(
            f"the store has comparisons by {len(judges)} judges or rubrics: {', '.join(judges)}",
            next_step="Say whose to show: --judge-model NAME, and --rubric FILE where a rubric's name follows it.",
        )
    return _judge(judges[0].removesuffix(f"/{rubric}") if rubric else judges[0]), stages[0]


def _judge(name: str) -> Model:
    return Model("judge", served_name=name)


ORDERS: Final = 2
"""Questions about one pair of answers: each answer comes first once."""


class AgainstModel:
    """The tasks that one model answered, shown to a judge with another model's answers. Implements `JudgedEnvironment`.

    Attributes:
        base_name: name of the environment that both models answered in.
        against: key of the second model.
    """

    def __init__(
        self, name: str, against: str, answers: Mapping[int, Answer], rubric: Rubric | None, base: Environment | None
    ) -> None:
        """Prepare it.

        Args:
            name: see `base_name`.
            against: see above.
            answers: of the second model, by index.
            rubric: criteria for the judge; when None, the environment's own, if it has any.
            base: that environment, if it is installed and needs a judge itself.
        """
        self.against = against
        self.base_name = name
        self._answers = answers
        self._rubric = rubric
        self._base = base
        self.spec = EnvironmentSpec(
            name=comparison_environment(name, against),
            summary=f"Answers in {name} beside those of {against}",
            daily_rate=1.0,
            data_length=2**53,
            reply_chars=100_000_000,
            needs_judge=True,
        )

    async def open(self, index: int, seed: int) -> _Episode:
        """Begin the comparison of both answers to task `index`."""
        answer = self._answers[index]
        if self._rubric is not None:
            points, instructions = self._rubric.texts, self._rubric.instructions
        else:
            points, instructions = await self._own_points(index, answer), ""
        return _Episode(answer, points, instructions, f"{self.spec.name}/{seed}")

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Return the second model's stored answer; no baseline competes with it."""
        del kind, seed, conversation, rng
        return self._answers[index].text

    def judgement(self, reply: str) -> Judgement | None:
        """Return which answer a judge prefers: 1 for the one shown as A, 0 for the other."""
        return read_preference(reply)

    def verdict(self, judgements: Sequence[Judgement]) -> Score:
        """Return the first model's score; judgements give its share, in alternating orders."""
        return score_of([judgement.value for judgement in judgements], judgements[0].why)

    async def _own_points(self, index: int, answer: Answer) -> tuple[str, ...]:
        if self._base is None:
            return ()
        return await points_of_task(self._base, index, seed_of(self.base_name, index), answer.replies)


class _Episode:
    """One comparison: the reply that it receives is the first model's stored answer."""

    def __init__(self, answer: Answer, points: Sequence[str], instructions: str, secret: str) -> None:
        self._answer = answer
        self._points = points
        self._instructions = instructions
        self._secret = secret
        self.opening = (Message("user", answer.question),)

    async def answer(self, reply: str) -> Continue | Score | ForJudge:
        first, second = reply, self._answer.text
        if first == second:
            return Score(0.5, success=False, why=judged_note((), "both answers are the same, letter by letter"))
        return ForJudge((self._asked(first, second), self._asked(second, first)))

    async def close(self) -> None:
        pass

    def _asked(self, shown_first: str, shown_second: str) -> tuple[Message, ...]:
        return pair_question(
            self._answer.question,
            self._points,
            shown_first,
            shown_second,
            secret=self._secret,
            instructions=self._instructions,
        )


class BothOrders:
    """Judgements of both orders, each converted to the first model's share. Implements `Verdicts`; stateless."""

    reminder = PAIR_REMINDER

    def read(self, environment: JudgedEnvironment, number: int, reply: str) -> Judgement | None:
        """Return the first model's share according to a reply; every second question shows its answer as B."""
        preferred = environment.judgement(reply)
        if preferred is None or number % ORDERS:
            return preferred
        return Judgement(1.0 - preferred.value, preferred.why)

    def score(self, environment: JudgedEnvironment, judgements: Mapping[int, Judgement], asked: int) -> Score | None:
        """Return the score of all pairs of judgements in both orders; None if no pair is complete."""
        whole = [n for n in range(1, asked + 1, ORDERS) if n in judgements and n + 1 in judgements]
        if not whole:
            return None
        return environment.verdict([judgements[each] for n in whole for each in (n, n + 1)])


def score_of(values: Sequence[float], why: str) -> Score:
    """Return the first model's score from its shares, in alternating orders.

    A model preferred in both orders wins that pair of judgements; everything else is a tie: a judge that always
    prefers the answer shown first has not told them apart.
    """
    pairs = list(zip(values[::ORDERS], values[1::ORDERS], strict=True))
    outcomes = [1.0 if pair == (1.0, 1.0) else 0.0 if pair == (0.0, 0.0) else 0.5 for pair in pairs]
    value = sum(outcomes) / len(outcomes)
    return Score(value, success=value > 0.5, why=judged_note(values, why))


@dataclass(frozen=True, slots=True)
class StoredAnswers:
    """Answers for the models from the store, and forwards the judge's questions. Implements `ChatSource`."""

    chats: ChatSource
    answers: Answers
    environments: Mapping[str, str]
    """The environment that both models answered in, by the name of the comparison's environment."""

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:
        """Return a chat that gives a model's stored answer, or one that asks the judge."""
        if task.stage != ROLLOUT:
            return self.chats.chat(model, task, emit, trace_id=trace_id)
        answer = self.answers[self.environments[task.environment], model.key][task.index]

        async def stored(messages: Sequence[Message]) -> ChatReply:
            del messages
            return ChatReply(answer.text, prompt_tokens=0, completion_tokens=0)

        return stored
