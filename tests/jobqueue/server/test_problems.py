"""Whatever goes wrong on `/v1` is a problem document that shows the value, the rule and the next step."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest

from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.server import RunningServer
from headgate.jobqueue.wire import ProblemOut
from tests.jobqueue.server.conftest import JOB, Queue


def _problem(answer: httpx.Response) -> ProblemOut:
    assert answer.headers["content-type"] == "application/problem+json"
    found = ProblemOut.model_validate(answer.json())
    assert found.status == answer.status_code
    assert found.detail
    return found


@pytest.mark.parametrize("path", ["/v1", "/v1/nothing", "/nothing", "/v1/jobs/a/b/c", "/docs"])
async def test_an_unknown_path_is_a_problem(queue: Queue, path: str) -> None:
    answer = await queue.http.get(path)
    assert (answer.status_code, _problem(answer).code) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("PUT", "/v1/jobs", "GET, HEAD, POST"), ("DELETE", "/v1/claims", "POST"), ("POST", "/health", "GET, HEAD")],
)
async def test_a_wrong_method_is_told_which_ones_there_are(queue: Queue, method: str, path: str, allowed: str) -> None:
    answer = await queue.http.request(method, path)
    assert (answer.status_code, _problem(answer).code) == (405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": "a/b"}, "body.jobs.0.id"),
        ({"id": 17}, "body.jobs.0.id"),
        ({"team": ""}, "body.jobs.0.team"),
        ({"task": "x" * 201}, "body.jobs.0.task"),
        ({"priority": 0.5}, "body.jobs.0.priority"),
        ({"payload": [1]}, "body.jobs.0.payload"),
        ({"prioritty": 1}, "body.jobs.0.prioritty"),
    ],
)
async def test_a_wrong_value_is_shown_with_its_field_and_rule(queue: Queue, change: dict[str, Any], field: str) -> None:
    answer = await queue.post("/v1/jobs", {"jobs": [{**JOB, **change}]})
    found = _problem(answer)
    assert (answer.status_code, found.code, [one.field for one in found.errors]) == (422, "invalid_input", [field])
    assert found.errors[0].rule
    assert len(found.errors[0].value) <= 100


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[1]",
        b'{"jobs": [{"id": "1", "team": "a", "task": "t", "payload": {"x": NaN}}]}',
        b'{"jobs": [{"id": "1", "team": "a", "task": "t", "payload": ' + b'{"a":' * 70 + b"1" + b"}" * 70 + b"}]}",
        b"[" * 100_000,
        b'{"jobs": [{"id": "\xff", "team": "a", "task": "t"}]}',
        b'{"jobs": [{"id": "\\ud800", "team": "a", "task": "t"}]}',
    ],
)
async def test_what_is_no_acceptable_json_is_refused(queue: Queue, raw: bytes) -> None:
    answer = await queue.http.post("/v1/jobs", content=raw, headers={"content-type": "application/json"})
    assert (answer.status_code, _problem(answer).code) == (422, "invalid_input")


@pytest.mark.parametrize("extra", [b"NaN", b"1e999", b"[" * 65 + b"]" * 65, b'"' + b"x" * 262_144 + b'"'])
async def test_a_server_that_cannot_be_stored_is_refused(queue: Queue, extra: bytes) -> None:
    raw = b'{"resources": [{"pool": "p", "host": "h", "port": 1, "more": %b}]}' % extra
    answer = await queue.http.post("/v1/resources", content=raw, headers={"content-type": "application/json"})
    found = _problem(answer)
    assert (answer.status_code, [one.field for one in found.errors]) == (422, ["body.resources.0"])


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/jobs?limit=10001", "query.limit"),
        ("/v1/jobs?limit=many", "query.limit"),
        ("/v1/jobs?limit=1&limit=2", "query.limit"),
        ("/v1/jobs?after=9223372036854775808", "query.after"),
        ("/v1/jobs?stat=done", "query.stat"),
        ("/v1/history?what=nonsense", "query.what.0"),
        ("/v1/jobs/%00", "path.job_id"),
    ],
)
async def test_a_wrong_parameter_is_shown(queue: Queue, path: str, field: str) -> None:
    found = _problem(await queue.http.get(path))
    assert (found.status, [one.field for one in found.errors]) == (422, [field])


@pytest.mark.parametrize("media_type", ["text/plain", "", "application/x-www-form-urlencoded"])
async def test_a_body_that_says_it_is_no_json_is_refused(queue: Queue, media_type: str) -> None:
    answer = await queue.http.post("/v1/claims", content=b'{"worker": "w"}', headers={"content-type": media_type})
    assert (answer.status_code, _problem(answer).code) == (415, "not_json")


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(queue: Queue) -> None:
    answer = await queue.post("/v1/claims", {"worker": "w" * 2 * 1024**2})
    assert (answer.status_code, _problem(answer).code) == (413, "body_too_large")


async def test_a_body_of_unknown_length_is_refused_when_it_grows_too_large(queue: Queue) -> None:
    async def endless() -> Any:
        for _ in range(40):
            yield b" " * 65_536

    answer = await queue.http.post("/v1/claims", content=endless(), headers={"content-type": "application/json"})
    assert (answer.status_code, _problem(answer).code) == (413, "body_too_large")


async def test_batches_may_be_larger_than_ordinary_bodies(queue: Queue) -> None:
    payload = {"blob": "x" * 200_000}
    await queue.submit(*({**JOB, "id": str(number), "payload": payload} for number in range(20)))


async def test_a_body_that_does_not_come_ends_the_request(live: RunningServer) -> None:
    service = live.service
    service.settings = service.settings.model_copy(update={"body_deadline_s": 0.05})
    host, port = live.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
    )
    head = await reader.readuntil(b"\r\n")
    writer.close()
    assert b" 408 " in head


async def test_what_nobody_expected_is_logged_and_not_shown(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr("headgate.jobqueue.server.v1_claims._answer_of", broken)
    with caplog.at_level(logging.ERROR):
        answer = await queue.post("/v1/claims", {"worker": "w"})
    assert (answer.status_code, _problem(answer).code) == (500, "internal")
    assert "secret of the house" not in answer.text
    assert "secret of the house" in caplog.text


async def test_a_database_that_takes_nothing_is_not_healthy(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise StoreFailedError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(queue.store, "commit", full)
        assert (await queue.post("/v1/jobs", {"jobs": [JOB]})).status_code == 503
        assert (await queue.http.get("/health")).status_code == 503, "also when it can be read again"
    await queue.submit(JOB)
    assert (await queue.http.get("/health")).status_code == 200


async def test_a_closed_database_is_503(queue: Queue) -> None:
    queue.writer.close()
    answer = await queue.post("/v1/claims", {"worker": "w"})
    assert (answer.status_code, _problem(answer).code) == (503, "jobqueue_store_failed")
    assert answer.headers["retry-after"] == "1"
    assert (await queue.http.get("/health")).status_code == 503
