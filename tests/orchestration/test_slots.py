"""Slots leased from global concurrency limits of a real Prefect server."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from headgate.admission import ProviderModel, RequestItem, RequestKey, limit_rule
from headgate.core.events import SlotLimitChanged, SlotLimitDiffers, SlotsLost
from headgate.orchestration import SlotBroker
from tests.orchestration.slot_site import UNHURRIED, Site, asked, busy, limit_now, set_limit, unique_host, until

pytestmark = pytest.mark.slow


async def test_requests_never_exceed_the_limit_and_every_slot_is_given_back(prefect: object) -> None:
    site = Site(unique_host(), 10, speed=UNHURRIED)
    await set_limit(site.rule.name, 10)
    async with site.open():
        await asyncio.gather(*(site.request(0.1) for _ in range(60)))
        seen = await limit_now(site.rule.name)
    assert site.done == 60
    assert site.most_in_flight == 10
    assert seen is not None
    assert seen.active_slots == 10
    left = await limit_now(site.rule.name)
    assert left is not None
    assert left.active_slots == 0
    holders = await asked(lambda service: service.holders())
    assert site.broker.holder not in {holder.name for holder in holders}  # type: ignore[attr-defined]


async def test_thousands_of_requests_make_a_handful_of_calls(prefect: object, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    send = httpx.AsyncClient.send

    async def counted(client: httpx.AsyncClient, request: httpx.Request, **options: object) -> httpx.Response:
        calls.append(f"{request.method} {request.url.path}")
        return await send(client, request, **options)  # type: ignore[arg-type]

    site = Site(unique_host(), 8)
    await set_limit(site.rule.name, 8)
    monkeypatch.setattr(httpx.AsyncClient, "send", counted)
    async with site.open():
        for _ in range(50):
            await asyncio.gather(*(site.request() for _ in range(100)))
    assert site.done == 5_000
    assert len([call for call in calls if "increment" in call]) == 1
    assert len(calls) < 40, calls


async def test_a_change_in_the_ui_takes_effect_within_one_renewal(prefect: object) -> None:
    site = Site(unique_host(), 16)
    name = site.rule.name
    await set_limit(name, 16)
    async with site.open(), busy(site):
        await until(lambda: site.in_flight == 16)
        await set_limit(name, 4)
        await until(lambda: site.in_flight == 4, within_s=5.0)
        # Requests end first, then slots are given back: the server's answer to that takes as long as it takes.
        async with asyncio.timeout(60.0):
            while (seen := await limit_now(name)) is None or seen.active_slots > 4:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await set_limit(name, 12)
        await until(lambda: site.in_flight == 12, within_s=5.0)
    assert [e for e in site.events if isinstance(e, SlotLimitChanged)][1:] == [
        SlotLimitChanged(name, 16, 4),
        SlotLimitChanged(name, 4, 12),
    ]


async def test_a_limit_deleted_while_in_use_admits_nothing_until_it_is_back(prefect: object) -> None:
    site = Site(unique_host(), 8)
    name = site.rule.name
    await set_limit(name, 8)
    async with site.open(), busy(site):
        await until(lambda: site.in_flight == 8)
        await asked(lambda service: service._client.delete_global_concurrency_limit_by_name(name))
        await until(lambda: "SlotLimitMissing" in site.kinds())
        await until(lambda: site.in_flight == 0)
        done = site.done
        await asyncio.sleep(0.2)
        assert site.done == done
        assert SlotsLost(name, 8, 0, "limit_deleted") in site.events
        await set_limit(name, 8)
        await until(lambda: site.done > done)


async def test_a_limit_that_does_not_exist_admits_nothing(prefect: object) -> None:
    site = Site(unique_host(), 8)
    async with site.open(), busy(site, workers=5):
        await until(lambda: "SlotLimitMissing" in site.kinds())
        await asyncio.sleep(0.3)
    assert site.done == 0


async def test_two_processes_that_were_given_different_numbers_keep_to_the_limit_and_say_so_once(
    prefect: object,
) -> None:
    host = unique_host()
    right, wrong = Site(host, 6), Site(host, 40)
    name = right.rule.name
    await set_limit(name, 6)
    async with right.open(), wrong.open(), busy(right), busy(wrong):
        await until(lambda: right.in_flight + wrong.in_flight == 6)
        await until(lambda: "SlotLimitDiffers" in wrong.kinds())
        await set_limit(name, 4)
        await until(lambda: SlotLimitChanged(name, 6, 4) in wrong.events, within_s=5.0)
    assert [e for e in wrong.events if isinstance(e, SlotLimitDiffers)] == [SlotLimitDiffers(name, 40, 6)]
    assert "SlotLimitDiffers" not in right.kinds()


async def test_two_processes_with_different_caps_share_one_endpoint(prefect: object) -> None:
    host = unique_host()
    small, large = Site(host, 12, most=3), Site(host, 12)
    await set_limit(small.rule.name, 12)
    async with large.open(), busy(large):
        await until(lambda: large.in_flight == 12)
        async with small.open(), busy(small):
            await until(lambda: small.in_flight == 3)
            await until(lambda: large.in_flight == 9)
            seen = await limit_now(large.rule.name)
            assert seen is not None
            assert seen.active_slots == 12
    assert small.most_in_flight == 3


async def test_a_process_that_comes_later_gets_its_share(prefect: object) -> None:
    host = unique_host()
    first, second = Site(host, 16), Site(host, 16)
    await set_limit(first.rule.name, 16)
    async with first.open(), busy(first):
        await until(lambda: first.in_flight == 16)
        async with second.open(), busy(second):
            await until(lambda: second.in_flight == 8)
            await until(lambda: first.in_flight == 8)
        await until(lambda: first.in_flight == 16)


async def test_an_endpoint_that_no_limit_covers_is_not_bounded(prefect: object) -> None:
    site = Site(unique_host(), 8)
    site.model = type(site.model)("https://elsewhere.test/v1", "model")
    async with site.open():
        await asyncio.gather(*(site.request() for _ in range(50)))
    assert site.most_in_flight == 50
    assert "SlotsLeased" not in site.kinds()


async def test_tasks_that_wait_for_slots_before_they_make_a_request_make_it_grow(prefect: object) -> None:
    site = Site(unique_host(), 32, speed=UNHURRIED)
    await set_limit(site.rule.name, 32)
    ready = {"tasks": 0}

    async def taken() -> int:
        seen = await limit_now(site.rule.name)
        return seen.active_slots if seen is not None else -1

    site.broker.follow(site.model, 1_000)
    async with site.broker.serving(site.admission, site.events.append, lambda _: ready["tasks"]):
        site.admission.register(site.model, 1_000, "model")
        await until(lambda: "SlotsLeased" in site.kinds())
        assert await taken() == 8  # one block at least, or nothing would ever be started
        ready["tasks"] = 20
        # They are in flight until it has grown, however long the server takes for its answer.
        requests = [asyncio.create_task(site.request(120.0)) for _ in range(8)]
        await until(lambda: site.kinds().count("SlotsLeased") > 1)  # before any of the tasks has made a request
        assert await taken() >= 16
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
    assert await taken() == 0


async def test_providers_of_one_limit_share_what_a_process_holds(prefect: object) -> None:
    first = Site(f"a.{unique_host()}", 8)
    name = first.rule.name
    second = ProviderModel(first.model.provider.replace("://a.", "://b."), "model")
    rule = limit_rule(f"*.{first.model.provider.split('a.', 1)[1].removesuffix('/v1')}", 8, name=name)
    first.broker = SlotBroker([rule], clock=first.clock)
    await set_limit(name, 8)
    done = {first.model: 0, second: 0}
    in_flight = {first.model: 0, second: 0}
    most = 0

    async def work(model: ProviderModel) -> None:
        nonlocal most
        while min(done.values()) < 40:
            async with first.admission.admit(RequestItem(RequestKey(model), "group")):
                in_flight[model] += 1
                most = max(most, sum(in_flight.values()))
                await asyncio.sleep(0.01)
                in_flight[model] -= 1
                done[model] += 1

    first.broker.follow(first.model, 1_000)
    first.broker.follow(second, 1_000)
    async with first.broker.serving(first.admission, first.events.append):
        for model in done:
            first.admission.register(model, 1_000, "model")
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for model in done:
                for _ in range(20):
                    group.create_task(work(model))
    assert most <= 8
