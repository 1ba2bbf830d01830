"""The environment `agentgym:webshop` and its baseline shoppers."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Final

from headgate.core import Message
from headgate.environments.protocol import BaselineKind, EnvironmentSpec
from headgate.environments.webshop.catalogue import kinds
from headgate.environments.webshop.episode import WebShopEpisode
from headgate.environments.webshop.pages import SEARCHING
from headgate.environments.webshop.reward import require_rapidfuzz
from headgate.environments.webshop.search import load_shop
from headgate.environments.webshop.tasks import INSTRUCTIONS, MAX_ROUNDS, shopping_task

_BUYING: Final = "click[buy now]"


class WebShopEnvironment:
    """WebShop in a shop of our own. Stateless; tasks depend on the index alone."""

    _spec: Final = EnvironmentSpec(
        name="agentgym:webshop",
        summary="Buy what an instruction asks for in a web shop told in words, in up to 10 rounds",
        daily_rate=100.0,
        data_length=INSTRUCTIONS,
        max_rounds=MAX_ROUNDS,
        licence="Apache-2.0",
        source="products of our own; pages and reward as published by princeton-nlp/WebShop and WooooDyy/AgentGym",
        chance_score=0.002,
        tasks_are_drawn=True,
    )

    @property
    def spec(self) -> EnvironmentSpec:
        """What is known of it without running it."""
        return self._spec

    async def open(self, index: int, seed: int) -> WebShopEpisode:
        """Begin task `index`; `seed` is not used, since the index says which instruction."""
        del seed
        await asyncio.to_thread(load_shop)
        return WebShopEpisode(shopping_task(index))

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply with any legal action, a plain search and its first hit (`greedy`), or the way to what is asked for."""
        del seed
        if kind == "solver":
            await asyncio.to_thread(load_shop)
            turn = sum(message.role == "assistant" for message in conversation)
            return _reply(kind, shopping_task(index).actions()[turn])
        seen = conversation[-1].content
        return _reply(kind, _any_action(seen, rng) if kind == "random" else _first_hit(seen))


def webshop() -> WebShopEnvironment:
    """Return `agentgym:webshop`.

    Raises:
        MissingExtraError: if rapidfuzz, which compares texts, is not installed.
    """
    require_rapidfuzz()
    return WebShopEnvironment()


def _any_action(seen: str, rng: random.Random) -> str:
    """Return one of the available actions; a search is for two words that name things of the shop."""
    action = rng.choice(_available(seen))
    if action != SEARCHING:
        return action
    words = sorted({word for kind in kinds() for word in kind.name.split()})
    return f"search[{' '.join(rng.sample(words, 2))}]"


def _first_hit(seen: str) -> str:
    """Return a search of the whole instruction, the first product found, or the purchase."""
    available = _available(seen)
    if SEARCHING in available:
        return f"search[{seen.rpartition('Instruction: [SEP] ')[2].partition(' [SEP] ')[0]}]"
    return _BUYING if _BUYING in available else next(text for text in available if text.startswith("click[hg"))


def _available(seen: str) -> list[str]:
    listed: list[str] = json.loads(seen.rpartition("\nAvailable actions: ")[2])
    return listed


def _reply(thought: str, action: str) -> str:
    return f"Thought: {thought}\nAction: {action}"
