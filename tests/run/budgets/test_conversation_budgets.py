"""What one conversation may spend, and what of it reaches the endpoint."""

from __future__ import annotations

import pytest

from headgate.config import Settings
from headgate.core import ChatError, ChatReply, ErrorKind, Message, Model, ModelBudget, Price
from headgate.run.budgets.conversation import ConversationBudget, conversation_budget
from headgate.run.budgets.keeper import Budgets
from headgate.simulation import LoopClock, run_virtual

OPENING = (Message("user", "x" * 400),)


def begun(budgets: Budgets, model: Model) -> ConversationBudget:
    conversation = conversation_budget(budgets, model, "t-1", "affine:sat")
    assert conversation is not None
    return conversation


def test_the_reply_is_shortened_to_what_is_left_under_the_name_that_the_model_uses() -> None:
    asked = run_virtual(_asked(Model("a", options=(("max_completion_tokens", 900),)), sample_tokens="affine:sat=300"))
    assert dict(asked.options)["max_completion_tokens"] == 300 - 105


def test_a_shorter_reply_than_is_left_stays_as_it_is() -> None:
    model = Model("a", options=(("max_tokens", 50),))
    assert run_virtual(_asked(model, sample_tokens="300")) is model


async def _asked(model: Model, **settings: object) -> Model:
    budgets = Budgets(Settings(**settings), clock=LoopClock(), emit=lambda _: None)
    return await begun(budgets, model).before(OPENING)


@pytest.mark.parametrize("where", ["settings", "roster"])
def test_a_request_that_does_not_fit_is_the_models_own_doing(where: str) -> None:
    model = Model("a", budget=ModelBudget(sample_tokens=300 if where == "roster" else None))

    async def main() -> None:
        settings = Settings(sample_tokens="300") if where == "settings" else Settings()
        budgets = Budgets(settings, clock=LoopClock(), emit=lambda _: None)
        conversation = begun(budgets, model)
        await conversation.before(OPENING)
        conversation.after(OPENING, ChatReply("y", 100, 180))
        with pytest.raises(ChatError, match="280 of 300 tokens after 1 reply") as refused:
            await conversation.before((*OPENING, Message("assistant", "y"), Message("user", "go on")))
        assert refused.value.kind is ErrorKind.BUDGET
        assert refused.value.attempts == 0

    run_virtual(main())


def test_a_late_answer_is_refused_with_what_it_cost() -> None:
    async def main() -> None:
        budgets = Budgets(Settings(sample_time_s="10"), clock=LoopClock(), emit=lambda _: None)
        conversation = begun(budgets, Model("a"))
        await conversation.before(OPENING)
        late = ChatReply("y", 100, 20, latency_s=10.5, wait_s=500.0)
        with pytest.raises(ChatError) as refused:
            conversation.after(OPENING, late)
        assert refused.value.reply is late

    run_virtual(main())


def test_waiting_is_never_held_against_the_model() -> None:
    async def main() -> None:
        budgets = Budgets(Settings(sample_time_s="10"), clock=LoopClock(), emit=lambda _: None)
        conversation = begun(budgets, Model("a"))
        await conversation.before(OPENING)
        conversation.after(OPENING, ChatReply("y", 100, 20, latency_s=2.0, wait_s=500.0))
        await conversation.before(OPENING)

    run_virtual(main())


def test_where_nothing_is_limited_or_priced_no_budget_is_kept() -> None:
    async def main() -> None:
        budgets = Budgets(Settings(sample_tokens="affine:sat=300"), clock=LoopClock(), emit=lambda _: None)
        assert conversation_budget(budgets, Model("a"), "t-1", "affine:cdv") is None
        assert conversation_budget(budgets, Model("a"), "t-1", "affine:sat") is not None
        priced = Model("b", budget=ModelBudget(price=Price.of(0, 1.0)))
        assert conversation_budget(budgets, priced, "t-1", "affine:cdv") is not None

    run_virtual(main())


def test_a_first_request_that_does_not_fit_is_not_the_models_doing() -> None:
    async def main() -> None:
        budgets = Budgets(Settings(sample_tokens="100"), clock=LoopClock(), emit=lambda _: None)
        with pytest.raises(ChatError, match="sample_tokens has no room for its first request: 0 of 100") as refused:
            await begun(budgets, Model("a")).before(OPENING)
        assert not refused.value.kind.is_scored

    run_virtual(main())


def test_thoughts_count_once_and_are_not_expected_in_the_next_prompt() -> None:
    async def main() -> None:
        budgets = Budgets(Settings(sample_tokens="16000"), clock=LoopClock(), emit=lambda _: None)
        conversation = begun(budgets, Model("a"))
        await conversation.before(OPENING)
        conversation.after(OPENING, ChatReply("y" * 40, 100, 9_000))
        asked = await conversation.before((*OPENING, Message("assistant", "y" * 40), Message("user", "go on")))
        left = int(str(dict(asked.options)["max_tokens"]))
        assert 16_000 - 9_100 - 200 < left < 16_000 - 9_100 - 100

    run_virtual(main())
