"""One visit to the shop: replies in, pages out, until something is bought or the rounds are over."""

from __future__ import annotations

import re
from typing import Final

from headgate.core import Message
from headgate.environments.answers import named_actions
from headgate.environments.protocol import Continue, Score
from headgate.environments.single_turn import failed
from headgate.environments.webshop.pages import Page, Purchase, StartPage, can_search, observation, results_of
from headgate.environments.webshop.reward import reward_of
from headgate.environments.webshop.tasks import MAX_ROUNDS, ShoppingTask

_RULES: Final = """\
You are shopping in a web shop. The instruction says what to buy. Each round you see a page and take one action.

Actions:
- search[<keywords>]: search the shop, on a page with the search bar
- click[<text>]: click one of the buttons, products or options that the page lists as available

Choose the options that the instruction asks for on the product's page, then click Buy Now, which ends the visit. What \
you buy is judged by its kind, attributes, options and price. You have {rounds} rounds in all. Reply in this form:
Thought: <why>
Action: <action>

{observation}"""

_ACTION: Final = re.compile(r"(search|click)\s*\[(.+)\]", re.IGNORECASE | re.DOTALL)
_ACTION_CHARS: Final = 1_000
"""No title, and so no useful search, is nearly as long."""


class WebShopEpisode:
    """One visit in progress. Owned by one worker; holds memory only."""

    def __init__(self, task: ShoppingTask) -> None:
        self._task = task
        self._page: Page = StartPage()
        self._rounds = 0
        text = _RULES.format(rounds=MAX_ROUNDS, observation=observation(task.instruction, self._page))
        self._opening = (Message("user", text),)

    @property
    def opening(self) -> tuple[Message, ...]:
        """The rules, the instruction and the first page."""
        return self._opening

    async def answer(self, reply: str) -> Continue | Score:
        """Take the action in `reply`."""
        self._rounds += 1
        reached = self._reached(reply)
        if isinstance(reached, Purchase):
            return self._judged(reached)
        if self._rounds >= MAX_ROUNDS:
            return failed(f"nothing was bought: rounds={self._rounds}")
        if isinstance(reached, str):
            said = f"{reached}\n\n{observation(self._task.instruction, self._page)}"
        else:
            self._page = reached
            said = observation(self._task.instruction, reached)
        return Continue((Message("user", said),))

    async def close(self) -> None:
        """Free nothing."""

    def _reached(self, reply: str) -> Page | Purchase | str:
        """Return where `reply` leads, or why it leads nowhere."""
        named = list(named_actions(reply))
        if len(named) > 1:
            return "Only one action is allowed per reply; nothing was done."
        action = (named[0] if named else reply)[:_ACTION_CHARS].strip(" \t\r\n*`'\".")
        found = _ACTION.fullmatch(action)
        if found is None:
            return f"Could not read {action!r:.80}. Actions are search[<keywords>] and click[<text>]."
        return self._searched(found[2]) if found[1].lower() == "search" else self._clicked(found[2])

    def _searched(self, keywords: str) -> Page | str:
        if not can_search(self._page):
            return "There is no search bar on this page; click[back to search] leads to it."
        return results_of(keywords)

    def _clicked(self, text: str) -> Page | Purchase | str:
        leads_to = self._page.clicks().get(" ".join(text.lower().split()))
        return leads_to() if leads_to else f"There is no {text!r:.80} to click on this page."

    def _judged(self, purchase: Purchase) -> Score:
        product = purchase.product
        reward = reward_of(product.goods, product.price, purchase.chosen, self._task.wish)
        parts = f"type={reward.type_factor} attributes={reward.attributes} options={reward.options}"
        why = f"bought {product.item_id}: {parts} price={int(reward.price)} of {reward.terms}, rounds={self._rounds}"
        return Score(reward.value, success=reward.value == 1.0, why=why)
