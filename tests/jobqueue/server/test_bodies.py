"""What a body can cost the server: its route bounds its size, ten flaws end its reading, and large ones take turns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.jobqueue.errors import TooManyOpenError
from headgate.jobqueue.server import bodies
from headgate.jobqueue.server.bodies import LargeBodies, checked
from headgate.jobqueue.wire import Body, CompletionsIn, RenewIn, SubmitIn
from headgate.net.request_flaws import FlawedError
from tests.jobqueue.server.conftest import JOB, Queue

LEASE = {"lease_id": "0" * 32, "epoch": 1}


@pytest.mark.parametrize(
    "body",  # a function: each process that collects the tests would make all of them
    [
        lambda: {f"{number:x}": 0 for number in range(200_000)},
        lambda: {"jobs": [{f"{number:x}": 0 for number in range(50_000)}] * 4},
        lambda: {"jobs": [[]] * 500_000},
        lambda: {"jobs": [{"id": "1", "team": "", "task": "t"}] * 20_000},
        lambda: {"jobs": [{**JOB, "payload": {"x": "y" * 300_000}}] * 20},
    ],
)
async def test_of_many_flaws_ten_are_told(queue: Queue, body: Callable[[], dict[str, Any]]) -> None:
    answer = await queue.post("/v1/jobs", body())
    assert (answer.status_code, len(answer.json()["errors"])) == (422, 10)
    assert len(answer.content) < 10_000


@pytest.mark.parametrize("small", [{f"{number:x}": 0 for number in range(5000)}, {"worker": "w", "teams": [""] * 900}])
async def test_the_flaws_of_a_small_body_are_ten_at_most_as_well(queue: Queue, small: dict[str, Any]) -> None:
    answer = await queue.post("/v1/claims", small)
    assert (answer.status_code, len(answer.json()["errors"])) == (422, 10)


@pytest.mark.parametrize(
    ("path", "size"),
    [
        ("/v1/claims", 65_000),
        ("/v1/jobs/17/give-back", 65_000),
        ("/v1/reservations", 65_000),
        ("/v1/leases/renew", 4 * 1024**2),
        ("/v1/jobs/17/complete", 1024**2),
    ],
)
async def test_a_body_is_as_large_as_its_route_can_need(queue: Queue, path: str, size: int) -> None:
    for more, status in ((-100, 422), (1000, 413)):
        raw = b'{"more": 1' + b" " * (size + more) + b"}"
        answer = await queue.http.post(path, content=raw, headers={"content-type": "application/json"})
        assert answer.status_code == status


async def test_the_longest_heartbeat_is_taken(queue: Queue) -> None:
    leases = [{"job_id": f"{number:0200d}", **LEASE} for number in range(10_000)]
    answer = await queue.post("/v1/leases/renew", {"leases": leases})
    assert [one["status"] for one in answer.json()["renewals"]] == ["unknown"] * 10_000


async def test_large_bodies_of_one_token_come_one_after_another() -> None:
    large = LargeBodies()
    async with large.turn("a", 1), large.turn("a", 1), large.turn("a", 1), large.turn("a", 1):
        with pytest.raises(TooManyOpenError, match="is sending 4 bodies"):
            async with large.turn("a", 0):
                pass
        async with large.turn("b", 0):
            pass
    async with large.turn("a", 0):
        pass
    large.close()


async def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(queue: Queue) -> None:
    raw = b'{"jobs": [' + b"[]," * 700_000 + b"]}"
    answer = await queue.http.post("/v1/jobs", content=raw, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
_JOBS = st.fixed_dictionaries(
    {"id": st.text(max_size=3) | _VALUES, "team": st.just("a"), "task": st.just("t")},
    optional={"payload": st.dictionaries(st.text(max_size=3), _VALUES, max_size=3), "priority": _VALUES},
)
_BODIES = st.dictionaries(st.sampled_from(["jobs", "completions", "leases", "more"]), _VALUES | st.lists(_JOBS))


def _outcome(model: type[Body], raw: bytes) -> Body | None:
    try:
        return checked(model, raw)  # type: ignore[return-value]
    except FlawedError:
        return None


@given(_BODIES | st.fixed_dictionaries({"jobs": st.lists(_JOBS, max_size=3)}), st.sampled_from([None, 2]), st.data())
def test_entry_by_entry_a_body_is_what_it_is_at_once(body: Any, indent: int | None, data: st.DataObject) -> None:
    raw = json.dumps(body, indent=indent, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "surrogatepass")
    raw = raw[: data.draw(st.none() | st.integers(0, len(raw)))]
    with pytest.MonkeyPatch.context() as patch:
        for model in (SubmitIn, RenewIn, CompletionsIn):
            at_once = _outcome(model, raw)
            patch.setattr(bodies, "SMALL_BYTES", -1)
            assert _outcome(model, raw) == at_once
            patch.undo()
