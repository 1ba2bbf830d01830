"""The budget of one conversation: asked before each request, told of each answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headgate.campaign.budgets.keeper import Account, Budgets
from headgate.core import ChatError, ChatReply, ErrorKind, Message, Model, Spending
from headgate.sampling.budgets import SampleBudget, Spent, prompt_chars

_LENGTH_OPTIONS: Final = ("max_completion_tokens", "max_tokens")
"""The fields of a request that bound its reply, the newer name first."""


class ConversationBudget:
    """What one episode spends, of its own budget and of its model's day. One per conversation.

    A prompt is estimated from the last one that the endpoint counted, and the characters that were added since; before
    the first answer, from characters alone.
    """

    __slots__ = ("_account", "_budgets", "_estimate", "_known", "_model", "_sample", "_seen", "_task_id")

    def __init__(self, budgets: Budgets, model: Model, task_id: str, environment: str) -> None:
        self._budgets = budgets
        self._account: Account = budgets.account(model)
        self._model = model
        self._task_id = task_id
        self._sample = SampleBudget(budgets.sample_limits(self._account, environment))
        self._known = 0
        self._seen = 0
        self._estimate = 0

    def before(self, messages: Sequence[Message]) -> Model:
        """Return the model as this request asks it: with a shorter reply where the sample's budget leaves no more.

        Raises:
            ChatError: BUDGET when the sample has used up its budget, DAILY_BUDGET when the model has used up its own;
                nothing is to be sent then.
        """
        habits = self._account.habits
        added = habits.tokens_of(prompt_chars(messages[self._seen :]))
        self._estimate = prompt = self._known + added
        allowed = self._sample.ask(prompt)
        if isinstance(allowed, Spent):
            raise ChatError(ErrorKind.BUDGET, allowed.reason, attempts=0)
        name, wanted = _reply_length(self._model)
        model, longest = self._model, wanted
        if allowed.max_completion is not None and (wanted is None or wanted > allowed.max_completion):
            longest = allowed.max_completion
            options = tuple(option for option in self._model.options if option[0] not in _LENGTH_OPTIONS)
            model = replace(self._model, options=(*options, (name, longest)))
        # A bound that nobody chose says little about a reply: what the model usually says is held in its place.
        completion = habits.completion_tokens if wanted is None else wanted
        if longest is not None:
            completion = min(completion, longest)
        stop = self._budgets.hold(self._task_id, self._account, self._account.budget.spending(prompt, completion))
        if stop is not None:
            raise ChatError(ErrorKind.DAILY_BUDGET, stop.reason, attempts=0)
        return model

    def after(self, messages: Sequence[Message], reply: ChatReply) -> None:
        """Count an answer.

        Raises:
            ChatError: BUDGET when it came after the sample's time was over; it carries the reply.
        """
        account = self._account
        prompt, completion = reply.prompt_tokens, reply.completion_tokens
        if prompt or completion:
            account.habits.answered(prompt_chars(messages), prompt, completion)
        else:
            prompt, completion = self._estimate, account.habits.tokens_of(len(reply.text))
            self._budgets.usage_missing(account, prompt + completion)
        # What comes next is this prompt and its reply, and what the environment adds to them.
        self._known, self._seen = prompt + completion, len(messages) + 1
        self._budgets.settle(self._task_id, account, account.budget.spending(prompt, completion, reply.attempts))
        late = self._sample.answered(prompt, completion, reply.latency_s)
        if late is not None:
            raise ChatError(ErrorKind.BUDGET, late.reason, reply=reply)

    def failed(self, attempts: int) -> None:
        """Count the attempts of a request that was not answered; what tokens they took nobody says."""
        self._budgets.settle(self._task_id, self._account, Spending(0, attempts, 0))


def _reply_length(model: Model) -> tuple[str, int | None]:
    """Return the option that bounds a model's replies, and its value; None without one."""
    options = dict(model.options)
    for name in _LENGTH_OPTIONS:
        value = options.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return name, value
    return "max_tokens", None
