"""The client against our own endpoint, over real sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from headgate.core import ErrorKind, Message, Model, Secret
from headgate.models import ChatClient, ClientSettings, FaultPlan, SimulationPlan, TaskReference, serve
from headgate.models.endpoint import Endpoint
from tests.models.doubles import HELLO, EchoEnvironment, ask_once, failure_of

FAST = SimulationPlan(mean_s=0.0, cv=0.0, reply="a simulated answer")
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def simulated(endpoint: Endpoint) -> Model:
    return Model("simulated", base_url=endpoint.base_url)


@BOTH_WAYS
async def test_a_reply_has_its_text_tokens_and_latency(stream: bool) -> None:
    async with serve(simulation=FAST) as endpoint:
        reply = await ask_once(simulated(endpoint), ClientSettings(stream=stream))
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("a simulated answer", 1, 3)
    assert (reply.attempts, reply.wait_s) == (1, 0.0)
    assert reply.latency_s > 0
    assert (reply.first_token_s is not None) is stream
    assert (reply.first_token_s or 0) <= reply.latency_s


async def test_a_model_may_ask_for_its_own_answers_to_be_streamed() -> None:
    async with serve(simulation=FAST) as endpoint:
        reply = await ask_once(replace(simulated(endpoint), options=(("stream", True),)))
    assert reply.first_token_s is not None


async def test_the_task_header_goes_to_models_that_ask_for_it_and_to_no_other() -> None:
    header = str(TaskReference("test:echo", 4, 77, 14))
    async with serve(find_environment=lambda _: EchoEnvironment()) as endpoint:
        plain = Model("m", base_url=endpoint.base_url, served_name="baseline-greedy")
        asking = replace(plain, options=(("headgate_task_header", True), ("temperature", 0.5)))
        told = await ask_once(asking, task_header=header)
        untold = await ask_once(plain, task_header=header)
        without = await ask_once(asking)
    assert told.text.startswith("greedy index=4 seed=77 turn=1 draw=")
    assert "needs" in untold.text or "name their task" in untold.text
    assert without.text == untold.text


async def test_a_hundred_requests_at_once_are_all_answered_by_one_client() -> None:
    async with (
        serve(simulation=FAST.model_copy(update={"cap": 100, "mean_s": 0.05})) as endpoint,
        ChatClient() as client,
        asyncio.TaskGroup() as group,
    ):
        tasks = [group.create_task(client.chat(simulated(endpoint), HELLO)) for _ in range(100)]
    assert {task.result().text for task in tasks} == {"a simulated answer"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ErrorKind.BAD_REQUEST),
        (401, ErrorKind.AUTH),
        (403, ErrorKind.AUTH),
        (408, ErrorKind.PROVIDER_TIMEOUT),
        (422, ErrorKind.BAD_REQUEST),
        (429, ErrorKind.RATE_LIMITED),
        (500, ErrorKind.PROVIDER_FAILURE),
        (503, ErrorKind.PROVIDER_FAILURE),
    ],
)
async def test_an_error_status_is_classified_with_its_retry_after(status: int, kind: ErrorKind) -> None:
    async with serve(FaultPlan.parse(f"error:status={status},retry_after_s=2.5"), simulation=FAST) as endpoint:
        error = await failure_of(simulated(endpoint))
    assert (error.kind, error.status, error.retry_after_s) == (kind, status, 2.5)


async def test_a_wrong_key_is_an_auth_error_and_the_right_one_is_answered() -> None:
    async with serve(FaultPlan.parse("key:key=sesame-open"), simulation=FAST) as endpoint:
        model = simulated(endpoint)
        assert (await failure_of(model)).kind is ErrorKind.AUTH
        assert (await failure_of(replace(model, api_key=Secret("wrong-key")))).status == 401
        assert (await ask_once(replace(model, api_key=Secret("sesame-open")))).text == "a simulated answer"


@BOTH_WAYS
async def test_an_endpoint_that_hangs_is_a_timeout(stream: bool) -> None:
    async with serve(FaultPlan.parse("hang"), simulation=FAST) as endpoint:
        error = await failure_of(simulated(endpoint), ClientSettings(deadline_s=0.2, stream=stream))
    assert (error.kind, error.status) == (ErrorKind.PROVIDER_TIMEOUT, None)
    assert "0.2 s" in str(error)


async def test_a_stream_whose_first_token_does_not_come_is_a_timeout_before_the_deadline() -> None:
    async with serve(FaultPlan.parse("hang"), simulation=FAST) as endpoint:
        error = await failure_of(simulated(endpoint), ClientSettings(stream=True, first_token_s=0.1))
    assert error.kind is ErrorKind.PROVIDER_TIMEOUT
    assert str(error) == "no token within 0.1 s"


async def test_a_slow_endpoint_is_waited_for() -> None:
    async with serve(FaultPlan.parse("slow:mean_s=0.1,cv=0"), simulation=FAST) as endpoint:
        assert (await ask_once(simulated(endpoint))).latency_s >= 0.1


@BOTH_WAYS
@pytest.mark.parametrize("ending", ["reset", "clean"])
async def test_an_answer_that_was_cut_is_the_provider_s_failure(stream: bool, ending: str) -> None:
    async with serve(FaultPlan.parse(f"cut:ending={ending}"), simulation=FAST) as endpoint:
        error = await failure_of(simulated(endpoint), ClientSettings(stream=stream))
    assert error.kind is ErrorKind.PROVIDER_FAILURE


@BOTH_WAYS
@pytest.mark.parametrize("form", ["invalid_utf8", "not_json", "empty", "no_choices"])
async def test_garbage_in_place_of_an_answer_is_the_provider_s_failure(stream: bool, form: str) -> None:
    async with serve(FaultPlan.parse(f"garbage:form={form}"), simulation=FAST) as endpoint:
        error = await failure_of(simulated(endpoint), ClientSettings(stream=stream))
    assert error.kind is ErrorKind.PROVIDER_FAILURE


@pytest.mark.parametrize(
    "settings",
    # A stream is read no faster than any model talks: eight megabytes would take seven seconds.
    [
        pytest.param(ClientSettings(), id="whole"),
        pytest.param(ClientSettings(stream=True, max_reply_bytes=2**20), id="streamed"),
    ],
)
async def test_an_answer_of_many_megabytes_is_not_read_and_is_the_model_s_bad_answer(settings: ClientSettings) -> None:
    async with serve(FaultPlan.parse("garbage:form=huge,size_bytes=10000000"), simulation=FAST) as endpoint:
        error = await failure_of(simulated(endpoint), settings)
    assert error.kind is ErrorKind.BAD_ANSWER
    assert f"{settings.max_reply_bytes} bytes" in str(error)


@pytest.mark.parametrize(("size", "fits"), [(500, True), (5000, False)])
async def test_the_limit_of_an_answer_is_in_bytes(size: int, fits: bool) -> None:
    async with serve(FaultPlan.parse(f"garbage:form=huge,size_bytes={size}"), simulation=FAST) as endpoint:
        settings = ClientSettings(max_reply_bytes=1000)
        if fits:
            assert "a" * size in (await ask_once(simulated(endpoint), settings)).text
        else:
            assert (await failure_of(simulated(endpoint), settings)).kind is ErrorKind.BAD_ANSWER


async def test_a_refused_connection_is_a_connection_error() -> None:
    async with serve() as endpoint:
        model = simulated(endpoint)
    assert (await failure_of(model)).kind is ErrorKind.CONNECTION


async def test_a_host_without_an_address_is_a_connection_error() -> None:
    assert (await failure_of(Model("m", base_url="http://no-such-host.invalid/v1"))).kind is ErrorKind.CONNECTION


async def test_cancelling_a_request_cancels_it_and_leaves_the_client_usable() -> None:
    async with (
        serve(FaultPlan.parse("hang:model=simulated-stuck"), simulation=FAST) as endpoint,
        ChatClient() as client,
    ):
        task = asyncio.create_task(client.chat(replace(simulated(endpoint), name="simulated-stuck"), HELLO))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.chat(simulated(endpoint), (Message("user", "again"),))).text == "a simulated answer"
