"""How the servers of AgentGym differ, environment by environment, as their sources define it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_PROMPTS: Final = Path(__file__).with_name("prompts")


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one environment's server is asked and answers. Never changes.

    Attributes:
        environment: AgentGym's name of it.
        name: its name in Headgate; `-server`, since environments of our own have AgentGym's names.
        summary: one line for listings.
        daily_rate: samples per model and day.
        data_length: how many tasks there are.
        licence: of its tasks.
        consent: what the model is made to reply to the instructions (AgentGym's).
        create_body: what `POST /create` is sent; None for nothing.
        id_key: how requests name the session.
        index_key: how `POST /reset` names the task.
        reset_body: what it is sent beside.
        opening_keys: what of its answer the model is told, in this order; empty where `GET /observation` says it.
        text_key: what of the answer to `POST /step` the model is told.
        score_key: what of that answer is the score.
        full_score: its highest value.
        pass_mark: share of it at which a success begins, for an episode that is done.
        has_close: whether there is a `POST /close`; sessions of other servers are used again.
        lists_actions: whether answers hold `available_actions`, which the model is told as well.
        is_plain: whether actions are sent without punctuation, as AgentGym's client does.
        idle_actions: actions that do no harm, for baselines where the server lists none.
    """

    environment: str
    name: str
    summary: str
    daily_rate: float
    data_length: int
    licence: str
    consent: str = "OK. I'll follow your instructions and try my best to solve the task."
    create_body: Mapping[str, Any] | None = None
    id_key: str = "id"
    index_key: str = "data_idx"
    reset_body: Mapping[str, Any] = field(default_factory=dict)
    opening_keys: tuple[str, ...] = ("observation",)
    text_key: str = "observation"
    score_key: str = "reward"
    full_score: float = 1.0
    pass_mark: float = 1.0
    has_close: bool = True
    lists_actions: bool = False
    is_plain: bool = False
    idle_actions: tuple[str, ...] = ("inventory",)

    @property
    def instructions(self) -> str:
        """AgentGym's own words to the model."""
        return (_PROMPTS / f"{self.environment}.txt").read_text(encoding="utf-8").rstrip("\n")


DIALECTS: Final = (
    Dialect(
        environment="alfworld",
        name="agentgym:alfworld-server",
        summary="Do a household task in a house told in words (AgentGym server)",
        daily_rate=80.0,
        data_length=2_500,
        licence="MIT",
        index_key="game",
        reset_body={"world_type": "Text"},
        has_close=False,
        lists_actions=True,
        idle_actions=("look",),
    ),
    Dialect(
        environment="babyai",
        name="agentgym:babyai-server",
        summary="Carry out a mission in a grid world told in words (AgentGym server)",
        daily_rate=120.0,
        data_length=4_000,
        licence="Apache-2.0",
        score_key="score",
        # minigrid's reward of a success: 1 - 0.9 * steps / steps allowed.
        pass_mark=0.1,
        is_plain=True,
        idle_actions=("turn left", "turn right"),
    ),
    Dialect(
        environment="sciworld",
        name="agentgym:sciworld-server",
        summary="Do an elementary science experiment told in words (AgentGym server)",
        daily_rate=80.0,
        data_length=4_639,
        licence="Apache-2.0",
        opening_keys=("task_description", "observation"),
        score_key="score",
        full_score=100.0,
        idle_actions=("look around", "inventory", "wait1"),
    ),
    Dialect(
        environment="textcraft",
        name="agentgym:textcraft-server",
        summary="Craft a thing by recipes told among others (AgentGym server)",
        daily_rate=100.0,
        data_length=582,
        licence="MIT",
        create_body={"commands": None, "goal": None},
        is_plain=True,
    ),
    Dialect(
        environment="webshop",
        name="agentgym:webshop-server",
        summary="Buy what an instruction asks for in a web shop told in words (AgentGym server)",
        daily_rate=100.0,
        data_length=200,
        licence="MIT; products were scraped",
        consent="Ok.",
        id_key="env_idx",
        index_key="session_id",
        opening_keys=(),
        text_key="state",
        has_close=False,
        idle_actions=("click[back to search]",),
    ),
)
"""Every environment of AgentGym that a server can be configured for."""
