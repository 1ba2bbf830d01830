"""The metrics of a pool, as a scrape shows them."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headgate.elastic.service import ELASTIC_METRICS, ElasticCollector
from headgate.elastic.worker import WorkerState
from tests.elastic.service.desk import opened, virtual
from tests.elastic.service.in_memory import FakeEngine


def test_a_scrape_shows_what_happened() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0"), FakeEngine("w1")) as desk:
            registry = CollectorRegistry()
            registry.register(ElasticCollector(lambda: [desk.service.status()]))
            await asyncio.gather(*(desk.ask(f"r{number}") for number in range(6)))
            desk.engines[1].die()
            await desk.reaches(1, WorkerState.FAILED)

            def value(name: str, **labels: str) -> float | None:
                return registry.get_sample_value(f"headgate_elastic_{name}", {"pool": "chat", **labels})

            assert value("requests_total", outcome="served") == 6
            assert value("requests_total", outcome="lost") == 0
            assert value("workers", state="failed") == 1
            assert value("workers", state="starting") == 0
            assert value("worker_failures_total", worker="w1") == 1
            assert value("worker_slots", worker="w0") == 2
            assert value("answer_seconds_count") == 6
            assert value("answer_seconds_sum") == pytest.approx(4 * 1 + 2 * 2, abs=0.1)
            assert value("wait_seconds_bucket", le="0.5") == 4
            assert value("wait_seconds_bucket", le="+Inf") == 6
            elapsed_s = asyncio.get_running_loop().time()
            assert value("awake_seconds_total") == pytest.approx(2 * elapsed_s, abs=0.1)

    virtual(main)


def test_the_page_has_every_metric_that_is_documented_and_no_other() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0")) as desk:
            registry = CollectorRegistry()
            registry.register(ElasticCollector(lambda: [desk.service.status()]))
            await asyncio.sleep(0.1)
            families = list(text_string_to_metric_families(generate_latest(registry).decode()))
            named = {family.name + ("_total" if family.type == "counter" else ""): family for family in families}
            assert set(named) == set(ELASTIC_METRICS)
            for name, metric in ELASTIC_METRICS.items():
                assert named[name].type == metric.kind
                assert named[name].samples, f"{name} has no series"

    virtual(main)
