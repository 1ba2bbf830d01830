"""`headgate:tables`: a question about a table that only a program can answer, with a sandbox to run it in."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from headgate.core import Message
from headgate.environments import BaselineKind, Continue, EnvironmentSpec, Score, failed, passed
from headgate.environments.answers import last_tagged, without_thinking
from headgate.environments.tools import Toolbox, python_tool, tool_call

CUSTOMERS: Final = tuple(f"{first} {last}" for first in ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn") for last in (
    "Abel", "Brook", "Castle", "Dahl", "Engel"
))  # fmt: skip
PRODUCTS: Final = ("anvil", "bellows", "chisel", "drill", "file", "hammer")
REGIONS: Final = ("north", "east", "south", "west")
STATES: Final = ("shipped", "shipped", "shipped", "cancelled")

_FEWEST_ROWS: Final = 80
_MOST_ROWS: Final = 200


@dataclass(frozen=True, slots=True)
class Order:
    """One row. `price` is in cents here, and in whole units with two decimals in the table."""

    order: int
    month: int
    customer: str
    region: str
    product: str
    units: int
    price: int
    state: str


def orders(rng: random.Random) -> tuple[Order, ...]:
    """Return 80 to 200 orders."""
    return tuple(
        Order(
            order=1_000 + number,
            month=rng.randint(1, 12),
            customer=rng.choice(CUSTOMERS),
            region=rng.choice(REGIONS),
            product=rng.choice(PRODUCTS),
            units=rng.randint(1, 40),
            price=rng.randint(100, 9_999),
            state=rng.choice(STATES),
        )
        for number in range(rng.randint(_FEWEST_ROWS, _MOST_ROWS))
    )


def as_csv(rows: Sequence[Order]) -> str:
    """Return orders as comma separated values with a header."""
    header = ",".join(field.name for field in fields(Order))
    return "\n".join([header, *map(_line, rows)]) + "\n"


def _line(row: Order) -> str:
    return ",".join(f"{row.price / 100:.2f}" if name == "price" else str(getattr(row, name)) for name in _NAMES)


_NAMES: Final = tuple(field.name for field in fields(Order))

_READ: Final = """\
import csv, sys
from decimal import Decimal
rows = list(csv.DictReader(sys.stdin))
"""
_ONLY_SHIPPED: Final = "rows = [row for row in rows if row['state'] != 'cancelled']\n"


@dataclass(frozen=True, slots=True)
class Question:
    """A question with a unique answer.

    Attributes:
        words: the question to the model.
        answer: a number, or a name.
        program: reads the table from standard input and prints the answer.
        hasty_program: the same, but counts cancelled orders by mistake.
    """

    words: str
    answer: str
    program: str
    hasty_program: str


def drawn_question(rng: random.Random, rows: Sequence[Order]) -> Question:
    """Return a question with a unique answer: no tie, and not an empty one."""
    shipped = [row for row in rows if row.state != "cancelled"]
    while True:
        words, answer, program = rng.choice(_KINDS)(rng, shipped)
        if answer:
            return Question(words, answer, f"{_READ}{_ONLY_SHIPPED}{program}", f"{_READ}{program}")


def _revenue(rng: random.Random, rows: Sequence[Order]) -> tuple[str, str, str]:
    region, product = rng.choice(REGIONS), rng.choice(PRODUCTS)
    cents = sum(row.units * row.price for row in rows if (row.region, row.product) == (region, product))
    return (
        f"What is the revenue (units times price) of all orders of the product {product} in the region {region}?",
        f"{cents / 100:.2f}" if cents else "",
        (
            "print(sum(int(row['units']) * Decimal(row['price']) for row in rows"
            f" if row['region'] == {region!r} and row['product'] == {product!r}))"
        ),
    )


def _best_customer(rng: random.Random, rows: Sequence[Order]) -> tuple[str, str, str]:
    first = rng.randint(1, 9)
    units: Counter[str] = Counter()
    for row in rows:
        if first <= row.month <= first + 3:
            units[row.customer] += row.units
    ranked = units.most_common(2)
    is_one = len(ranked) == 2 and ranked[0][1] > ranked[1][1]
    return (
        f"Which customer ordered the most units in the months {first} to {first + 3}?",
        ranked[0][0] if is_one else "",
        (
            "from collections import Counter\nunits = Counter()\nfor row in rows:\n"
            f"    if {first} <= int(row['month']) <= {first + 3}:\n"
            "        units[row['customer']] += int(row['units'])\nprint(units.most_common(1)[0][0])"
        ),
    )


def _large_orders(rng: random.Random, rows: Sequence[Order]) -> tuple[str, str, str]:
    region, above = rng.choice(REGIONS), rng.randint(8, 30)
    count = sum(row.region == region and row.units > above for row in rows)
    return (
        f"How many orders in the region {region} have more than {above} units?",
        str(count) if count > 1 else "",
        f"print(sum(row['region'] == {region!r} and int(row['units']) > {above} for row in rows))",
    )


def _dearest_of_customer(rng: random.Random, rows: Sequence[Order]) -> tuple[str, str, str]:
    customer = rng.choice(CUSTOMERS)
    theirs = sorted((row.units * row.price, row.order) for row in rows if row.customer == customer)
    is_one = len(theirs) > 1 and theirs[-1][0] > theirs[-2][0]
    return (
        f"What is the number of the order with the highest revenue (units times price) of the customer {customer}?",
        str(theirs[-1][1]) if is_one else "",
        (
            f"theirs = [row for row in rows if row['customer'] == {customer!r}]\n"
            "print(max(theirs, key=lambda row: int(row['units']) * Decimal(row['price']))['order'])"
        ),
    )


_KINDS: Final[tuple[Callable[[random.Random, Sequence[Order]], tuple[str, str, str]], ...]] = (
    _revenue,
    _best_customer,
    _large_orders,
    _dearest_of_customer,
)


MAX_ROUNDS: Final = 8
SHOWN_ROWS: Final = 5
ANSWER_CHARS: Final = 100
"""A longer answer is neither a number nor a name."""

_CALL: Final = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL)

_TOLERANCE: Final = 0.005

SPEC: Final = EnvironmentSpec(
    name="headgate:tables",
    summary="Answer a question on a table by Python programs in a sandbox, in up to 8 rounds",
    daily_rate=100.0,
    data_length=1_000_000,
    max_rounds=MAX_ROUNDS,
    reply_chars=100_000,
    licence="Apache-2.0",
    source="Headgate; tables and questions are generated from the index",
    chance_score=0.006,
    runs_programs=True,
    tasks_are_drawn=True,
)


@dataclass(frozen=True, slots=True)
class TableTask:
    """A table and a question about it."""

    rows: tuple[Order, ...]
    question: Question


class TableEpisode:
    """One question in progress. Owned by one worker; holds memory only."""

    def __init__(self, task: TableTask) -> None:
        self._task = task
        self._rounds = 0
        table = as_csv(task.rows)
        about = "The whole table, header included, comes on standard input; each call begins anew."
        self._toolbox = Toolbox([python_tool(table, about)])
        shown = "".join(table.splitlines(keepends=True)[: SHOWN_ROWS + 1])
        text = (
            f"A table of {len(task.rows)} orders. Its first lines:\n\n{shown}\n"
            f"Cancelled orders do not count, anywhere.\n\n{task.question.words}\n\n{self._toolbox.instructions}\n\n"
            f"You have {MAX_ROUNDS} replies. "
            "End with the answer alone, a number or a name, between <answer> and </answer>."
        )
        self.opening = (Message("user", text),)

    async def answer(self, reply: str) -> Continue | Score:
        """Score the answer in `reply`, or run its tool call; an answer ends the episode whatever else the reply has."""
        self._rounds += 1
        # A program may print the tags: text inside a call is not an answer.
        said = last_tagged(_CALL.sub("", without_thinking(reply)), "answer")
        if said is not None:
            return _scored(said.strip(), self._task.question.answer)
        if self._rounds >= MAX_ROUNDS:
            return failed(f"no answer in {MAX_ROUNDS} replies")
        told = await self._toolbox.answered(reply)
        return Continue((Message("user", told or "Call the tool, or end with <answer>…</answer>."),))

    async def close(self) -> None:
        """Free nothing."""


class Tables:
    """Questions about tables. Stateless; programs run in the sandbox."""

    spec: Final = SPEC

    async def open(self, index: int, seed: int) -> TableEpisode:
        """Begin task `index`; all of it is drawn from `seed`, which the index determines."""
        del index
        return TableEpisode(table_task(seed))

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Guess a number or a name, run a program that forgets cancelled orders (`greedy`), or run the right one."""
        del index
        if kind == "random":
            return f"<answer>{rng.choice((rng.choice(CUSTOMERS), str(rng.randint(1, 1_200))))}</answer>"
        question = table_task(seed).question
        if len(conversation) == 1:
            return tool_call("python", code=question.program if kind == "solver" else question.hasty_program)
        result = conversation[-1].content.removeprefix("<tool_response>").removesuffix("</tool_response>")
        return f"<answer>{result.strip()}</answer>"


def tables() -> Tables:
    """Return `headgate:tables`."""
    return Tables()


def table_task(seed: int) -> TableTask:
    """Return the task of a seed."""
    rng = random.Random(f"{SPEC.name}/{seed}")
    rows = orders(rng)
    return TableTask(rows, drawn_question(rng, rows))


def _scored(said: str, right: str) -> Score:
    if not said or len(said) > ANSWER_CHARS:
        return failed(f"an answer of {len(said)} characters")
    if said.casefold() == right.casefold() or _is_same_number(said, right):
        return passed(f"answered {right}", right)
    return failed(f"answered {said!r}, right is {right}", said.casefold())


def _is_same_number(said: str, right: str) -> bool:
    try:
        return abs(float(said) - float(right)) < _TOLERANCE
    except ValueError:
        return False
