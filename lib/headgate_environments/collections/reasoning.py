"""`reasoning-gym:<data set>`: puzzles with one question and one answer, which reasoning-gym draws from the index."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from headgate.core import Message
from headgate.core.errors import EnvironmentFailedError, UnknownEnvironmentError
from headgate.environments import (
    BaselineKind,
    EnvironmentSpec,
    Score,
    SingleTurnEpisode,
    TaskCache,
    failed,
    passed,
    question,
)
from headgate_environments.collections.members import ListedCollection, required, tagged_answer, unknown

CHANCE: Final[Mapping[str, float]] = {
    "acre": 0.033,
    "basic_arithmetic": 0.017,
    "chain_sum": 0.017,
    "circuit_logic": 0.05,
    "color_cube_rotation": 0.05,
    "course_schedule": 0.033,
    "game_of_life_halting": 0.017,
    "largest_island": 0.05,
    "lcm": 0.017,
    "maze": 0.017,
    "number_format": 0.017,
    "number_sequence": 0.15,
    "prime_factorization": 0.017,
    "self_reference": 0.017,
    "string_manipulation": 0.017,
}
"""Mean score of the random baseline over tasks 0 to 59; it is 0 in all other data sets."""

Entry = Mapping[str, Any]
Gate = Callable[[str, Entry], bool]

_HASHED: Final = "its tasks change with PYTHONHASHSEED"

LEFT_OUT: Final[Mapping[str, str]] = {
    "codeio": "its scorer executes the model's code; affine:abd and affine:ded run its programs in a sandbox",
    "composite": "it is a mixture of the others",
    "intermediate_integration": "its scorer simplifies the model's formula, which can take unbounded time",
    "isomorphic_strings": _HASHED,
    "knight_swap": _HASHED,
    "list_functions": _HASHED,
    "polynomial_multiplication": _HASHED,
    "propositional_logic": "repeating a premise gets the full score",
    "ransom_note": _HASHED,
    "time_intervals": "its tasks change with the date",
    "word_ladder": _HASHED,
}

MADE_ONE_BY_ONE: Final = frozenset({"acre"})
"""Data sets that draw all their tasks before the first: here each task is the first of a data set with its own seed."""

NO_SOLUTION: Final = frozenset({"boxnet", "rush_hour"})
"""Data sets for which the package gives no answer."""

_EXPONENT: Final = re.compile(r"(?<!\w)\d+(?:\.\d*)?[eE][+-]?\d{3,}", re.ASCII)
"""Numbers such as 1e999999, which take a scorer minutes to write out."""

_ARITHMETIC: Final = re.compile(r"(?:\d{1,6}|[+\-/() ]|\*(?!\*))*")
_POLYNOMIAL: Final = re.compile(r"(?:\d{1,6}|\*\*[ ]?\d{1,2}(?!\d)|[A-Za-z]|[+\-/(). ]|\*(?!\*))*")
_POWER_OF_BRACKETS: Final = re.compile(r"\) *\*\*|\*\* *\d+ *\*\*|[A-Za-z]{2}")
_PROBABILITY: Final = re.compile(r"[0-9]{1,20}(?:[./][0-9]{1,20})?")
_FORMULA_CHARS: Final = 400


def _only(pattern: str) -> Gate:
    allowed = re.compile(pattern, re.ASCII)
    return lambda answer, _: allowed.fullmatch(answer) is not None


def _arithmetic(answer: str, _: Entry) -> bool:
    return len(answer) <= _FORMULA_CHARS and _ARITHMETIC.fullmatch(answer) is not None


def _four_given_numbers(answer: str, entry: Entry) -> bool:
    """Check that the four given numbers are used: the package's scorer accepts any four numbers."""
    used = sorted(map(int, re.findall(r"[0-9]+", answer))) if _arithmetic(answer, entry) else []
    return used == sorted(map(int, entry["metadata"]["numbers"]))


def _antiderivative(answer: str, _: Entry) -> bool:
    """Check for a sum of powers, without functions and powers of powers, which could take long to evaluate."""
    is_short = len(answer) <= _FORMULA_CHARS
    return is_short and _POLYNOMIAL.fullmatch(answer) is not None and not _POWER_OF_BRACKETS.search(answer)


def _probability(answer: str, entry: Entry) -> bool:
    """Check the value: the package's scorer gives full marks to a prefix of the number, such as 0."""
    try:
        return _PROBABILITY.fullmatch(answer) is not None and abs(Fraction(answer) - Fraction(entry["answer"])) <= 1e-4
    except ZeroDivisionError:
        return False


_GATES: Final[Mapping[str, Gate]] = {
    # These scorers evaluate the answer as Python; a right answer needs no other characters than these.
    "binary_matrix": _only(r"[0-9\s]*"),
    "countdown": _arithmetic,
    "n_queens": _only(r"[Q_\s]*"),
    "puzzle24": _four_given_numbers,
    "simple_integration": _antiderivative,
    "spiral_matrix": _only(r"[-0-9\s]*"),
    "string_insertion": _only(r"[A-E]*"),
    # These give full marks to wrong answers.
    "coin_flip": _probability,
    "complex_arithmetic": lambda answer, _: "nan" not in answer.lower(),
    "game_of_life_halting": lambda answer, entry: answer == str(entry["answer"]),
}


def may_be_scored(dataset: str, answer: str, entry: Entry) -> bool:
    """Return whether the package's scorer may see `answer`; if not, the answer counts as wrong."""
    if answer == solution(dataset, entry):
        return True
    gate = _GATES.get(dataset)
    return bool(answer) and not _EXPONENT.search(answer) and (gate is None or gate(answer, entry))


def solution(dataset: str, entry: Entry) -> str | None:
    """Return the package's own answer to a task, or None if it gives none."""
    if dataset in NO_SOLUTION:
        return None
    if dataset == "graph_color":
        coloring = entry["metadata"]["possible_answer"]
        return "{" + ", ".join(f'"{vertex}": {color}' for vertex, color in coloring.items()) + "}"
    if dataset == "rubiks_cube":
        return str(entry["metadata"]["example_correct_answer"])
    return str(entry["answer"])


PREFIX: Final = "reasoning-gym"
DATA_SEED: Final = 7
DATA_LENGTH: Final = 100_000
ANSWER_CHARS: Final = 20_000
"""The longest right answers, moves of a tower of Hanoi, have about 4 000 characters."""

_HOW_TO_ANSWER: Final = "Give your final answer between <answer> and </answer>, and nothing else between them."
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_WORD: Final = re.compile(r"[A-Za-z]+")


class ReasoningTasks:
    """One data set of reasoning-gym. Thread-safe; the data set is made with the first task.

    A task depends on its index alone. The score is 1 if the package's scorer gives its full mark, else 0: its partial
    marks are meant for training, and in many data sets any text gets some.
    """

    def __init__(self, dataset: str) -> None:
        self._dataset = dataset
        self._made: Any = None
        self._lock = threading.Lock()  # the package does not promise that making data sets and tasks is thread-safe
        self._entries: TaskCache[Entry] = TaskCache(self._entry, capacity=256)
        self.spec = EnvironmentSpec(
            name=f"{PREFIX}:{dataset}",
            summary=f"One question of reasoning-gym's {dataset.replace('_', ' ')}",
            daily_rate=100.0,
            data_length=DATA_LENGTH,
            licence="Apache-2.0",
            source=f"{dataset} of reasoning-gym, drawn from the index and scored by its scorer",
            chance_score=CHANCE.get(dataset, 0.0),
            solver_rate=0.0 if dataset in NO_SOLUTION else 0.99,
            tasks_are_drawn=True,
        )

    async def open(self, index: int, seed: int) -> SingleTurnEpisode:
        """Begin task `index`; `seed` is not used."""
        del seed
        entry = await self._entries.get(index, 0)

        async def judge(reply: str) -> Score:
            return await asyncio.to_thread(self._score, reply, entry)

        return SingleTurnEpisode(question(f"{entry['question'].strip()}\n\n{_HOW_TO_ANSWER}"), judge)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply with the package's own answer (`solver`), the question's last number or first word, or any of them.

        If the package gives no answer, the solver replies as `greedy` does.
        """
        del seed
        text = conversation[0].content.removesuffix(_HOW_TO_ANSWER)
        if kind == "random":
            return _answered(rng.choice([*_NUMBER.findall(text), *_WORD.findall(text), "True", "False"]))
        known = solution(self._dataset, await self._entries.get(index, 0)) if kind == "solver" else None
        return _answered(_rule_of_thumb(text) if known is None else known)

    async def _entry(self, index: int, _: int) -> Entry:
        return await asyncio.to_thread(self._drawn, index)

    def _drawn(self, index: int) -> Entry:
        gym = required("reasoning_gym", f"environment {self.spec.name!r}", PREFIX)
        try:
            with self._lock:
                if self._dataset in MADE_ONE_BY_ONE:
                    return dict(gym.create_dataset(self._dataset, seed=index, size=1)[0])
                return dict(self._opened(gym)[index])
        except Exception as error:
            raise EnvironmentFailedError(
                f"reasoning-gym cannot make task {index} of {self._dataset}: {type(error).__name__}: {error}"
            ) from error

    def _opened(self, gym: Any) -> Any:
        if self._made is None:
            self._made = gym.create_dataset(self._dataset, seed=DATA_SEED, size=DATA_LENGTH)
        return self._made

    def _score(self, reply: str, entry: Entry) -> Score:
        answer = tagged_answer(reply)
        if answer is None:
            return failed("no <answer>…</answer> in the reply")
        if len(answer) > ANSWER_CHARS:
            return failed(f"the answer has {len(answer)} characters, at most {ANSWER_CHARS} are read")
        if not may_be_scored(self._dataset, answer, entry):
            return failed("the answer is wrong or has another form than asked for", answer)
        is_right = self._has_full_mark(answer, entry)
        return passed("the answer is right", answer) if is_right else failed("the answer is wrong", answer)

    def _has_full_mark(self, answer: str, entry: Entry) -> bool:
        gym = required("reasoning_gym", f"environment {self.spec.name!r}", PREFIX)
        scorer = gym.get_score_answer_fn(self._dataset) if self._made is None else self._made.score_answer
        try:
            return float(scorer(answer, entry)) >= 1.0
        except Exception:  # noqa: BLE001 - scorers can read their own answers: if one fails, the model's answer is bad
            return False


class ReasoningGym(ListedCollection):
    """The data sets of reasoning-gym, without those in `LEFT_OUT`."""

    prefix = PREFIX
    summary = "Puzzles of one question in some 95 families, generated and scored by reasoning-gym"
    extra = PREFIX

    def _members(self) -> Iterable[str]:
        registered = required("reasoning_gym.factory", f"collection {PREFIX!r}", PREFIX).DATASETS
        return (dataset for dataset in registered if dataset not in LEFT_OUT)

    def _made(self, member: str) -> ReasoningTasks:
        return ReasoningTasks(member)

    def _refused(self, name: str, known: Iterable[str]) -> UnknownEnvironmentError:
        why = LEFT_OUT.get(name.partition(":")[2])
        return unknown(name, () if why else known, why or "")


def reasoning() -> ReasoningGym:
    """Return the collection `reasoning-gym`."""
    return ReasoningGym()


def _answered(answer: str) -> str:
    return f"<answer>{answer}</answer>"


def _rule_of_thumb(text: str) -> str:
    numbers = _NUMBER.findall(text)
    return str(numbers[-1] if numbers else next(iter(_WORD.findall(text)), "0"))
