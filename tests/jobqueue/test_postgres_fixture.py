"""Every test that asks for a database gets an empty one of its own."""

from __future__ import annotations

import psycopg
import pytest


@pytest.mark.parametrize("turn", [1, 2])
def test_a_test_finds_nothing_of_another_one(postgres_url: str, turn: int) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE only_mine ()")
