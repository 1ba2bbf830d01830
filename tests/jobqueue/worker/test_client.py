"""What the clients send, what they repeat, and what they make of answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from headgate.core.errors import HeadgateError, InvalidInputError, UnauthorizedError
from headgate.jobqueue import JobSpec, ResourceSpec, errors
from headgate.jobqueue.errors import InvalidJobError, JobQueueError
from headgate.jobqueue.server.app import ROUTES
from headgate.jobqueue.wire import (
    ClaimIn,
    CompleteIn,
    CompletionIn,
    FailIn,
    GiveBackIn,
    JobLeaseIn,
    ReleaseIn,
    RequeueIn,
    ReserveIn,
    WithdrawIn,
)
from headgate.jobqueue.worker import (
    ForbiddenError,
    JobQueueClient,
    QueueUnreachableError,
    RetryPolicy,
    SyncJobQueueClient,
    queue_address,
)
from headgate.jobqueue.worker.client import MOST_BYTES

LEASE = "0f" * 16
AT_ONCE = RetryPolicy(patience_s=10, base_s=0.001, max_s=0.002)


class Script:
    """A server that gives one answer after the other; an exception is raised in place of an answer."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def client(script: Script, url: str = "http://queue", retry: RetryPolicy = AT_ONCE) -> SyncJobQueueClient:
    return SyncJobQueueClient(url, retry=retry, transport=httpx.MockTransport(script))


def problem(status: int, code: str, detail: str = "it is so", **more: Any) -> httpx.Response:
    document = {"type": "about:blank", "title": "T", "status": status, "detail": detail, "code": code}
    return httpx.Response(status, json={**document, "next_step": "Do this.", **more})


def down() -> httpx.ConnectError:
    return httpx.ConnectError("refused")


EMPTY = {"jobs": []}


def test_a_claim_is_repeated_with_the_same_key_and_body() -> None:
    troubles = [down(), httpx.ReadTimeout("slow"), httpx.Response(500), httpx.Response(503)]
    script = Script(*troubles, httpx.Response(200, json=EMPTY))
    with client(script) as queue:
        assert queue.claim(ClaimIn(worker="w")).jobs == []
    assert len(script.requests) == 5
    assert len({request.headers["Idempotency-Key"] for request in script.requests}) == 1
    assert {request.content for request in script.requests} == {b'{"worker":"w"}'}


def test_two_claims_have_two_keys() -> None:
    script = Script(httpx.Response(200, json=EMPTY), httpx.Response(200, json=EMPTY))
    with client(script) as queue:
        queue.claim(ClaimIn(worker="w"))
        queue.claim(ClaimIn(worker="w"))
    assert len({request.headers["Idempotency-Key"] for request in script.requests}) == 2


async def test_both_clients_retry_by_the_same_rules() -> None:
    script = Script(down(), httpx.Response(502), httpx.Response(200, json={"resources": []}))
    async with JobQueueClient("http://queue", retry=AT_ONCE, transport=httpx.MockTransport(script)) as queue:
        assert await queue.resources() == []
    assert len(script.requests) == 3


@pytest.mark.parametrize(
    ("trouble", "sent"),
    [
        (down, 2),
        (lambda: httpx.Response(429), 2),
        (lambda: httpx.ReadTimeout("slow"), 1),
        (lambda: httpx.Response(503), 1),
    ],
)
def test_what_must_not_happen_twice_is_repeated_only_when_it_cannot_have_happened(
    trouble: Callable[[], Any], sent: int
) -> None:
    script = Script(trouble(), httpx.Response(200, json={"requeued": []}))
    with client(script) as queue:
        try:
            queue.requeue(RequeueIn())
        except JobQueueError:
            assert sent == 1
    assert len(script.requests) == sent


def test_a_refusal_is_not_repeated() -> None:
    script = Script(problem(409, "stale_lease"))
    with client(script) as queue, pytest.raises(errors.StaleLeaseError):
        queue.complete("1", CompleteIn(lease_id=LEASE, epoch=1))
    assert len(script.requests) == 1


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client slept each time; its time passes only so."""
    from headgate.jobqueue.worker import requests

    sleeps: list[float] = []

    class Time:
        monotonic = staticmethod(lambda: sum(sleeps))

        @staticmethod
        async def sleep(duration_s: float) -> None:
            sleeps.append(duration_s)

    monkeypatch.setattr(requests, "time", Time)
    monkeypatch.setattr(requests, "asyncio", Time)
    return sleeps


def test_retry_after_is_kept_to(slept: list[float]) -> None:
    script = Script(httpx.Response(429, headers={"Retry-After": "7"}), httpx.Response(200, json=EMPTY))
    with client(script) as queue:
        queue.claim(ClaimIn(worker="w"))
    assert len(slept) == 1
    assert 7 <= slept[0] <= 7.7


def test_patience_ends(slept: list[float]) -> None:
    script = Script(*(down() for _ in range(2_000)))
    brief = RetryPolicy(patience_s=20, base_s=5, max_s=5)
    with client(script, retry=brief) as queue, pytest.raises(QueueUnreachableError, match="ConnectError"):
        queue.statistics()
    assert 2 <= len(script.requests) <= 10
    assert sum(slept) <= 20


@pytest.mark.parametrize(
    ("patience_s", "says"), [(20.0, "retrying for up to 20 s"), (float("inf"), "retrying until it answers")]
)
def test_a_server_that_does_not_answer_is_told_of_once_until_it_answers(
    slept: list[float], caplog: pytest.LogCaptureFixture, patience_s: float, says: str
) -> None:
    answers = [down(), down(), httpx.Response(200, json=EMPTY), httpx.Response(429), httpx.Response(200, json=EMPTY)]
    with client(Script(*answers, down(), httpx.Response(200, json=EMPTY)), retry=RetryPolicy(patience_s)) as queue:
        told = []
        for _ in range(3):
            queue.claim(ClaimIn(worker="w"))
            told.append(len(caplog.messages))
    assert told == [1, 1, 2]
    assert caplog.messages[0] == f"the job queue at http://queue does not answer (ConnectError: refused); {says}"
    assert slept


def test_a_refusal_is_an_answer_so_the_next_outage_is_told_of(
    slept: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    answers = [down(), problem(404, "job_not_found"), down(), down(), problem(404, "job_not_found")]
    with client(Script(*answers), retry=RetryPolicy(20.0)) as queue:
        for _ in range(2):
            with pytest.raises(JobQueueError):
                queue.withdraw("1")
    assert len(caplog.messages) == 2
    assert slept


def test_a_server_that_is_not_there_is_named_without_its_token(unused_tcp_port: int) -> None:
    once = RetryPolicy(patience_s=0.0)
    url = f"http://worker:tokentokentoken@127.0.0.1:{unused_tcp_port}"
    with (
        SyncJobQueueClient(url, retry=once) as queue,
        pytest.raises(QueueUnreachableError, match=f"at http://127.0.0.1:{unused_tcp_port} does not") as caught,
    ):
        queue.statistics()
    assert "tokentokentoken" not in str(caught.value)


@pytest.mark.parametrize("job_id", ["", ".", "..", "a/b", "a\\b", "a\0b", "\ud800", "x" * 201, "x" * 1_000_000])
def test_an_id_that_no_job_can_have_is_not_sent(job_id: str) -> None:
    script = Script()
    with client(script) as queue, pytest.raises(InvalidInputError, match="a job's id must") as caught:
        queue.withdraw(job_id)
    assert script.requests == []
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(404, "unknown_job"), errors.UnknownJobError),
        (problem(404, "unknown_resource"), errors.UnknownResourceError),
        (problem(409, "job_conflict"), errors.JobConflictError),
        (problem(409, "wrong_state"), errors.WrongStateError),
        (problem(422, "idempotency_conflict"), errors.ReplyConflictError),
        (problem(422, "invalid_job"), InvalidJobError),
        (problem(422, "invalid_input"), InvalidInputError),
        (problem(401, "unauthorized"), UnauthorizedError),
        (problem(401, "a_new_word"), UnauthorizedError),
        (problem(403, "forbidden"), ForbiddenError),
        (problem(418, "a_new_word"), JobQueueError),
        (httpx.Response(401, text="no"), UnauthorizedError),
        (httpx.Response(501, text="<html>oh</html>"), QueueUnreachableError),
        (httpx.Response(200, text="<html>log in</html>"), QueueUnreachableError),
        (httpx.Response(302, headers={"Location": "/"}), QueueUnreachableError),
    ],
)
def test_problems_become_errors_of_their_own_types(answer: httpx.Response, kind: type[HeadgateError]) -> None:
    with client(Script(answer)) as queue, pytest.raises(kind) as caught:
        queue.job("1")
    assert type(caught.value) is kind


def test_an_error_says_what_the_server_said() -> None:
    flaw = {"field": "jobs.0.id", "rule": "must be text", "value": "7"}
    with client(Script(problem(418, "a_new_word", errors=[flaw]))) as queue, pytest.raises(JobQueueError) as caught:
        queue.job("1")
    assert str(caught.value) == "it is so: jobs.0.id: must be text (got 7). Do this."


def test_the_token_goes_along_and_stays_out_of_messages() -> None:
    script = Script(httpx.Response(501, text="you sent tokentokentoken"))
    queue = client(script, "http://worker:tokentokentoken@queue:8000/base/")
    with queue, pytest.raises(QueueUnreachableError) as caught:
        queue.job("a b?c#d")
    assert script.requests[0].headers["Authorization"] == "Bearer tokentokentoken"
    assert str(script.requests[0].url) == "http://queue:8000/base/v1/jobs/a%20b%3Fc%23d"
    assert "tokentokentoken" not in str(caught.value)
    assert "tokentokentoken" not in repr(queue.address)


@pytest.mark.parametrize(
    ("environ", "url", "token"),
    [
        ({}, "http://127.0.0.1:8000", ""),
        ({"JOB_QUEUE_URL": "http://old:1"}, "http://old:1", ""),
        ({"JOB_QUEUE_URL": "http://old", "HEADGATE_JOBQUEUE_URL": "https://u:a%40@[::1]:2/"}, "https://[::1]:2", "a@"),
        ({"JOB_QUEUE_URL": "http://u:t@old", "HEADGATE_JOBQUEUE_TOKEN": "mine"}, "http://old", "mine"),
    ],
)  # fmt: skip
def test_the_environment_names_the_server(environ: dict[str, str], url: str, token: str) -> None:
    address = queue_address(None, environ)
    assert (address.url, address.token.reveal()) == (url, token)


@pytest.mark.parametrize("text", ["queue:8000", "ftp://queue", "http://", "http://queue:port", "http://[1"])
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="must be a URL"):
        queue_address(text, {})


@pytest.mark.parametrize("token", ["hgq_…", "hgq_a\nb", "hgq_a\0b"])
def test_a_token_that_was_cut_short_for_reading_is_refused_with_the_next_step(token: str) -> None:
    with pytest.raises(InvalidInputError, match="characters that no token has") as refused:
        queue_address("http://queue", {"HEADGATE_JOBQUEUE_TOKEN": token})
    assert "hgq_" not in str(refused.value)
    assert "as `headgate jobqueue token create` printed it" in str(refused.value.next_step)


@pytest.mark.parametrize(
    ("jobs", "parts"),
    [
        ([JobSpec(str(n), "a", "t") for n in range(25_000)], [10_000, 10_000, 5_000]),
        ([JobSpec("x", "a", "t", payload=json.dumps({"x": "y" * 200_000}))] * 50, [20, 20, 10]),
    ],
    ids=["many", "large"],
)
def test_many_jobs_are_submitted_in_parts(jobs: list[JobSpec], parts: list[int]) -> None:
    script = Script(*(httpx.Response(200, json={"added": size - 1, "existing": 1}) for size in parts))
    with client(script) as queue:
        answer = queue.submit(jobs)
    assert (answer.added, answer.existing) == (len(jobs) - len(parts), len(parts))
    assert [len(json.loads(request.content)["jobs"]) for request in script.requests] == parts
    assert len({request.headers["Idempotency-Key"] for request in script.requests}) == len(parts)
    assert all(len(request.content) < MOST_BYTES * 1.1 for request in script.requests)


def test_a_job_that_breaks_a_rule_is_refused_before_anything_is_sent() -> None:
    script = Script()
    with client(script) as queue, pytest.raises(InvalidJobError, match="job 'a/b': id"):
        queue.submit([JobSpec("a/b", "a", "t")])
    assert script.requests == []


def test_all_pages_are_read() -> None:
    job = {
        "id": "1", "seq": 1, "team": "a", "task": "t", "instance": "", "pool": "", "resource_type": "", "payload": {},
        "priority": 0, "max_attempts": 3, "state": "done", "epoch": 1, "failures": 0, "worker": "w",
        "submitted_at": 1.0, "claimed_at": 1.0, "finished_at": 1.0, "last_error": "", "result": {},
        "result_ref": "", "checksum": "",
    }  # fmt: skip
    script = Script(
        httpx.Response(200, json={"jobs": [job, job], "next": 7}),
        httpx.Response(200, json={"jobs": [job], "next": None}),
        httpx.Response(200, json={"results": [{"entry": 4, "job": job}], "next": 4}),
        httpx.Response(200, json={"results": [], "next": 4}),
    )
    with client(script) as queue:
        assert len(list(queue.all_jobs(team="a"))) == 3
        assert [one.entry for one in queue.all_results(after=2)] == [4]
    assert [dict(request.url.params) for request in script.requests] == [
        {"limit": "1000", "team": "a"},
        {"limit": "1000", "team": "a", "after": "7"},
        {"after": "2", "limit": "1000"},
        {"after": "4", "limit": "1000"},
    ]


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert methods(JobQueueClient) == methods(SyncJobQueueClient)


def test_every_route_of_v1_has_a_method() -> None:
    lease = {"lease_id": LEASE, "epoch": 1}
    held = JobLeaseIn(job_id="1", **lease)
    asked: list[Callable[[SyncJobQueueClient], object]] = [
        lambda q: q.submit([JobSpec("1", "a", "t")]),
        lambda q: q.jobs(),
        lambda q: q.jobs(dead=True),
        lambda q: q.job("1"),
        lambda q: q.job_history("1"),
        lambda q: q.claim(ClaimIn(worker="w")),
        lambda q: q.renew([held]),
        lambda q: q.complete("1", CompleteIn(**lease)),
        lambda q: q.complete_many([CompletionIn(job_id="1", **lease)]),
        lambda q: q.fail("1", FailIn(**lease, error="x")),
        lambda q: q.give_back("1", GiveBackIn(**lease)),
        lambda q: q.reserve(ReserveIn(**dict(held))),
        lambda q: q.release(ReleaseIn(resource_id="p/0", **lease)),
        lambda q: q.requeue(RequeueIn()),
        lambda q: q.withdraw("1"),
        lambda q: q.withdraw_many(WithdrawIn(team="a")),
        lambda q: q.results(),
        lambda q: q.history(),
        lambda q: q.statistics(),
        lambda q: q.resources(),
        lambda q: q.register([ResourceSpec("p", "h", 1)]),
        lambda q: q.drain("a/b", 0),
        lambda q: q.open("a/b", 0),
        lambda q: q.remove("a/b", 0, force=True),
    ]
    script = Script(*(problem(418, "teapot") for _ in asked))
    with client(script) as queue:
        for ask in asked:
            with pytest.raises(JobQueueError):
                ask(queue)
    sent = [(request.method, request.url.path) for request in script.requests]
    for route in ROUTES:
        if route.pattern.startswith("/v1"):
            pattern = re.sub(r"\\{[^}]*\\}", ".+", re.escape(route.pattern))
            assert any(m == route.method and re.fullmatch(pattern, p) for m, p in sent), route.pattern
