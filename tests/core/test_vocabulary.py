"""The small rules of the vocabulary: models, samples, errors, time."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from headgate.core import ChatReply, ErrorKind, Model, ModelBudget, Price, SystemClock, errors, events, sample_task
from headgate.core.errors import HeadgateError, InvalidNameError
from headgate.core.sample import ONE_WORKER
from headgate.core.status import PairStatus, QueueStatus
from headgate.simulation.virtual_time import run_virtual

ERRORS = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, HeadgateError)]


def test_a_new_revision_is_a_new_model() -> None:
    assert Model("acme/small").key == "acme/small@main"
    assert Model("acme/small", "v2").key != Model("acme/small").key


@pytest.mark.parametrize("bad", [{"name": "../etc"}, {"name": "a", "revision": "b c"}, {"name": ""}])
def test_a_model_whose_name_cannot_be_stored_is_refused(bad: dict[str, str]) -> None:
    with pytest.raises(InvalidNameError):
        Model(**bad)


def test_a_request_names_the_model_as_its_endpoint_does() -> None:
    assert Model("acme/small").request_name == "acme/small"
    assert Model("acme/small", served_name="small-7b").request_name == "small-7b"


def test_a_reply_that_is_booked_keeps_everything_that_its_endpoint_said() -> None:
    values = {field.name: number for number, field in enumerate(dataclasses.fields(ChatReply), start=1)}
    reply = ChatReply(**values)  # type: ignore[arg-type]
    booked = reply.booked(0.5, 101, 102)
    assert dataclasses.asdict(booked) == values | {"wait_s": 0.5, "attempts": 101, "cost_micro": 102}


def test_a_bad_key_a_failing_service_and_a_refused_connection_are_service_errors_and_nothing_else() -> None:
    assert {kind for kind in ErrorKind if kind.is_service_error} == {
        ErrorKind.AUTH,
        ErrorKind.QUOTA,
        ErrorKind.PROVIDER_FAILURE,
        ErrorKind.CONNECTION,
    }


def test_only_an_answer_that_cannot_be_used_is_the_models_own_zero() -> None:
    assert {kind for kind in ErrorKind if kind.is_scored} == {ErrorKind.BAD_ANSWER, ErrorKind.BUDGET}


def test_a_task_takes_one_worker_unless_told_otherwise_and_nobody_can_change_that() -> None:
    task = sample_task(campaign="main", model="m@main", environment="e", sequence=3, data_length=2, due_at=0.0)
    assert dict(task.resources) == {"workers": 1}
    assert (task.group, task.index) == ("m@main", 1)
    with pytest.raises(TypeError):
        ONE_WORKER["workers"] = 2  # type: ignore[index]


@pytest.mark.parametrize("cls", ERRORS, ids=lambda c: c.__name__)
def test_every_error_has_a_code_a_next_step_and_its_statuses(cls: type[HeadgateError]) -> None:
    assert cls.code.replace("_", "").isalpha()
    assert cls.next_step.endswith(".")
    assert 400 <= cls.http_status < 600
    assert cls.exit_code in {1, 2, 3, 4}


def test_error_codes_are_told_apart() -> None:
    codes = [cls.code for cls in ERRORS]
    assert len(codes) == len(set(codes))


def test_an_error_says_what_is_wrong_and_what_to_do() -> None:
    error = errors.StoreError("bucket b is gone", next_step="Create it.")
    assert str(error) == "bucket b is gone. Create it."
    assert error.message == "bucket b is gone"
    assert errors.StoreError("other").next_step != "Create it."


@pytest.mark.parametrize(
    "cls", [c for _, c in inspect.getmembers(events, inspect.isclass) if c.__module__ == events.__name__]
)
def test_events_are_facts_that_cannot_be_changed(cls: type) -> None:
    assert issubclass(cls, events.Event)
    assert dataclasses.fields(cls) is not None
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert "__slots__" in vars(cls)


def test_a_mean_is_none_before_the_first_score() -> None:
    pair = PairStatus("m@main", "e", 3, 2, 0, 2, 0.0, 100.0, 0.0)
    assert pair.mean_score is None
    assert dataclasses.replace(pair, scored=4, score_sum=3.0).mean_score == 0.75


@pytest.mark.parametrize(("size", "is_warning"), [(4_999, False), (5_000, False), (5_001, True)])
def test_a_queue_warns_above_its_threshold_only(size: int, is_warning: bool) -> None:
    queue = QueueStatus(size, 0, 100_000, 5_000, 8_000, 3_000, False, 0, 0, 0, 0, {})
    assert queue.is_warning is is_warning


def test_the_clock_of_the_machine_goes_forward_while_it_sleeps() -> None:
    async def slept() -> tuple[float, float]:
        clock = SystemClock()
        before = clock.monotonic()
        await clock.sleep(0.0)
        return before, clock.monotonic()

    before, after = run_virtual(slept())
    assert after >= before
    assert SystemClock().wall() > 1_700_000_000


@pytest.mark.parametrize(
    ("reply", "cost"),
    [
        (ChatReply("", 1_000, 100), 2_000 + 1_000),
        (ChatReply("", 1_000, 100, billed_micro=7), 7),
        (ChatReply("", 1_000, 100, lane="batch"), None),
        (ChatReply("", 1_000, 100, lane="batch", billed_micro=7), 7),
    ],
)
def test_a_reply_costs_what_was_billed_else_what_the_roster_states(reply: ChatReply, cost: int | None) -> None:
    assert ModelBudget(price=Price.of(2.0, 10.0)).cost_of(reply, reply.billed_micro) == cost
    assert ModelBudget().cost_of(reply, reply.billed_micro) == reply.billed_micro
