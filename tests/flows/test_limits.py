"""Flow runs whose requests are bounded by a global concurrency limit."""

from __future__ import annotations

import uuid
from urllib.parse import urlsplit

import orjson
import pytest

from blocks import AdmissionLimits, EndpointLimit
from flows.sampling import sample_environment
from headgate.core import errors
from tests.flows.places import Places, window
from tests.orchestration.slot_site import limit_now, set_limit


async def test_a_window_takes_its_slots_from_the_limit_and_gives_them_back(
    prefect: object, places: Places, baselines: str
) -> None:
    name = f"l-{uuid.uuid4().hex[:8]}"
    await AdmissionLimits(limits=[EndpointLimit(endpoint=baselines, slots=3, limit=name)]).asave(name)
    events = places.folder / "events.jsonl"
    counts = await sample_environment(**window(places, limits=name, settings=places.settings(events_file=str(events))))
    assert counts["scored"] > 0
    assert counts["samples"] == counts["scored"] == await places.assert_nothing_lost()
    told = [orjson.loads(line) for line in events.read_bytes().splitlines()]
    leased = [event["fields"] for event in told if event["event"] == "slots_leased"]
    assert leased[0] == {"limit": name, "slots": 3, "held": 3}
    caps = [event["fields"]["after"] for event in told if event["event"] == "provider_slots_changed"]
    assert set(caps) <= {0, 3}
    seen = await limit_now(name)
    assert seen is not None
    assert (seen.limit, seen.active_slots) == (3, 0)


async def test_a_limit_that_was_changed_while_running_keeps_its_number(
    prefect: object, places: Places, baselines: str
) -> None:
    name = f"headgate:{urlsplit(baselines).netloc}"
    block = f"l-{uuid.uuid4().hex[:8]}"
    await AdmissionLimits(limits=[EndpointLimit(endpoint=baselines, slots=3)]).asave(block)
    await set_limit(name, 7)
    await sample_environment(**window(places, limits=block))
    seen = await limit_now(name)
    assert seen is not None
    assert seen.limit == 7


async def test_limits_that_do_not_exist_are_named_before_anything_starts(prefect: object, places: Places) -> None:
    with pytest.raises(errors.InvalidInputError, match="headgate-admission-limits/nowhere"):
        await sample_environment(**window(places, limits="nowhere"))
