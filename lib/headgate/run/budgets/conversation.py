"""The budget of one conversation: checked before each request, charged after each answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headgate.core import NO_SPENDING, ChatError, ChatReply, ErrorKind, Message, Model, Spending
from headgate.run.budgets.account import Account
from headgate.run.budgets.keeper import Budgets
from headgate.sampling.budgets import SampleBudget, SampleLimits, Spent, prompt_chars, reply_chars

_LENGTH_OPTIONS: Final = ("max_completion_tokens", "max_tokens")
"""Request fields that limit the length of a reply, the newer name first."""

_HIDDEN_FROM: Final = 2
"""A reply counted with more than this many times the tokens of its text was mostly reasoning, which is paid for but not
sent again with the next prompt."""


def conversation_budget(budgets: Budgets, model: Model, task_id: str, environment: str) -> ConversationBudget | None:
    """Return the budget of one conversation; None if neither the sample nor its model has one."""
    account = budgets.account(model)
    limits = budgets.sample_limits(account, environment)
    if not account.is_counted and not limits.any:
        return None
    return ConversationBudget(budgets, account, limits, model, task_id)


class ConversationBudget:
    """What one episode spends of its own budget and of its model's day. One per conversation.

    A prompt is estimated from the last one that the endpoint counted plus the characters added since; before the first
    answer, from characters alone.
    """

    def __init__(self, budgets: Budgets, account: Account, limits: SampleLimits, model: Model, task_id: str) -> None:
        self._budgets = budgets
        self._account = account
        self._model = model
        self._task_id = task_id
        self._sample = SampleBudget(limits)
        self._length_option, self._wanted = reply_length(model)
        self._known = 0
        self._seen = 0
        self._chars = 0
        self._estimate = 0
        self._needed = NO_SPENDING

    async def before(self, messages: Sequence[Message], lane: str = "now") -> Model:
        """Return the model for this request: with a shorter reply limit where the sample's budget leaves no more.

        Args:
            messages: the messages to send.
            lane: how they go: `now`, in a `batch`, or `done` when the reply has already come and is paid for.

        Raises:
            ChatError: the request must not be sent. BUDGET when the sample has used up its budget; BAD_REQUEST when
                that has no room even for the first request, for which the model is not to blame; DAILY_BUDGET when the
                model has used up its own.
        """
        account = self._account
        added = prompt_chars(messages[self._seen :] if self._seen else messages)
        self._chars += added
        self._estimate = prompt = self._known + account.habits.tokens_of(added)
        allowed = self._sample.ask(prompt)
        if isinstance(allowed, Spent):
            kind = ErrorKind.BUDGET if self._sample.replies else ErrorKind.BAD_REQUEST
            raise ChatError(kind, allowed.reason, attempts=0)
        longest = allowed.max_completion
        if account.is_counted and lane != "done":
            await self._hold(prompt, longest, lane)
        if longest is None or (self._wanted is not None and self._wanted <= longest):
            return self._model
        options = tuple(option for option in self._model.options if option[0] not in _LENGTH_OPTIONS)
        return replace(self._model, options=(*options, (self._length_option, longest)))

    async def _hold(self, prompt: int, longest: int | None, lane: str) -> None:
        # The longest allowed reply says little about its actual length: the model's usual length is held instead.
        account = self._account
        completion = account.habits.completion_tokens if self._wanted is None else self._wanted
        if longest is not None and completion > longest:
            completion = longest
        self._needed = account.budget.spending(prompt, completion, lane=lane)
        stop = await self._budgets.hold(self._task_id, account, self._needed)
        if stop is not None:
            raise ChatError(ErrorKind.DAILY_BUDGET, stop.reason, attempts=0)

    def waits(self, name: str) -> None:
        """Hold what the last request may take, and nothing more, in the name of the batch that it is in."""
        if self._account.is_counted:
            self.failed(0)
            self._budgets.ended(self._task_id)
            self._budgets.begin(name, self._account.alias, self._needed)

    def after(self, messages: Sequence[Message], reply: ChatReply, *, is_counted: bool = False) -> None:
        """Count an answer; if it `is_counted` already, not against the day again.

        Raises:
            ChatError: BUDGET when it came after the sample's time limit; it carries the reply.
        """
        account = self._account
        prompt, completion = reply.prompt_tokens, reply.completion_tokens
        said = reply_chars(reply.text)
        as_text = account.habits.tokens_of(said)
        if prompt and (completion or not reply.text):
            account.habits.answered(self._chars, prompt, completion)
        else:
            prompt, completion = prompt or self._estimate, completion or as_text
            self._budgets.usage_missing(account, prompt + completion)
        # The next prompt consists of this prompt and its reply, and what the environment adds to them.
        self._known = prompt + (as_text if completion > _HIDDEN_FROM * as_text else completion)
        self._seen = len(messages) + 1
        self._chars += said
        if account.is_counted and not is_counted:
            spent = account.budget.spending(prompt, completion, reply.attempts, reply.lane)
            if reply.cost_micro is not None:
                spent = spent._replace(cost_micro=reply.cost_micro)
            self._budgets.settle(self._task_id, account, spent)
        late = self._sample.answered(prompt, completion, reply.latency_s)
        if late is not None:
            raise ChatError(ErrorKind.BUDGET, late.reason, reply=reply)

    def failed(self, attempts: int) -> None:
        """Count the attempts of an unanswered request; how many tokens they took is unknown."""
        if self._account.is_counted:
            self._budgets.settle(self._task_id, self._account, Spending(0, attempts, 0))


def reply_length(model: Model) -> tuple[str, int | None]:
    """Return the option that limits the length of a model's replies, and its value; None if it has none."""
    options = dict(model.options)
    for name in _LENGTH_OPTIONS:
        value = options.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return name, value
    return "max_tokens", None
