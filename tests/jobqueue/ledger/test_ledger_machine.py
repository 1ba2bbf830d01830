"""The ledger does what its simple model does, on every store, whatever comes in whatever order.

`HEADGATE_LEDGER_RUNS=5000 HEADGATE_LEDGER_STEPS=200` runs the long form.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from headgate.jobqueue import Store
from headgate.jobqueue.stores import open_store
from headgate.jobqueue.stores.sqlite import MemoryStore
from headgate_bench.postgres import PrivatePostgres
from tests.examples import examples
from tests.jobqueue.ledger.legacy_machine import MixedLedgerMachine
from tests.jobqueue.ledger.machine import FRESH

RUNS = int(os.environ.get("HEADGATE_LEDGER_RUNS", "0")) or examples(80)
STEPS = int(os.environ.get("HEADGATE_LEDGER_STEPS", "50"))
LONG = pytest.mark.timeout(120 + RUNS * STEPS / 10)


def _run(fresh: FRESH, runs: int) -> None:
    run_state_machine_as_test(
        lambda: MixedLedgerMachine(fresh), settings=settings(max_examples=max(runs, 1), stateful_step_count=STEPS)
    )


@LONG
def test_in_sqlite() -> None:
    @contextmanager
    def fresh() -> Iterator[Store]:
        yield MemoryStore()

    _run(fresh, RUNS)


@pytest.mark.long
@LONG
@pytest.mark.slow
def test_in_postgres(postgres_server: PrivatePostgres) -> None:
    @contextmanager
    def fresh() -> Iterator[Store]:
        with postgres_server.fresh_database() as url:
            yield open_store(url)

    _run(fresh, RUNS // 5)
