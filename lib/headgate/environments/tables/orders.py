"""Tables of orders, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Final

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
    """One row. `price` is in cents in here, and written in whole units with two decimals."""

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
    values = [
        f"{value / 100:.2f}" if name == "price" else str(value)
        for name, value in zip(_NAMES, astuple(row), strict=True)
    ]
    return ",".join(values)


_NAMES: Final = tuple(field.name for field in fields(Order))
