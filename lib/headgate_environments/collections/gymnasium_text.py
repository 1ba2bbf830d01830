"""`gymnasium:<id>`: environments of gymnasium that can be played in text, mainly its toy games."""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Sequence
from typing import Any, Final

from headgate.core import Message
from headgate.core.errors import EnvironmentFailedError
from headgate.environments import BaselineKind, Continue, EnvironmentSpec, Score
from headgate.environments.answers import named_actions, without_thinking
from headgate_environments.collections.gymnasium_toys import GAMES, Game, basic_strategy, best_actions, plain_game
from headgate_environments.collections.members import member_of, required, unknown

PREFIX: Final = "gymnasium"
_FEATURE: Final = "collection 'gymnasium'"
_ACTION_CHARS: Final = 1_000
_HOW_TO_ACT: Final = "Reply with one action in this form:\nAction: <action>"


class GymnasiumEpisode:
    """One game in progress. Owned by one worker."""

    def __init__(self, name: str, made: Any, game: Game, index: int) -> None:
        self._name = name
        self._made = made
        self._game = game
        self._rounds = 0
        self._total = 0.0
        self._is_cut = False
        observation, _ = made.reset(seed=index)
        self.observation = observation
        named = f"Actions: {', '.join(game.actions)}\n" if game.actions else ""
        text = f"{game.rules}\nYou have {game.rounds} rounds.\n{named}{_HOW_TO_ACT}\n\n{self._told()}"
        self.opening = (Message("user", text),)

    @property
    def game(self) -> Any:
        """The unwrapped environment of gymnasium."""
        return self._made.unwrapped

    async def answer(self, reply: str) -> Continue | Score:
        """Take the action in `reply`.

        Raises:
            EnvironmentFailedError: if the environment raises.
        """
        return self.take(reply)

    def take(self, reply: str) -> Continue | Score:
        """Take the action in `reply`, as `answer` does."""
        self._rounds += 1
        action, problem = self._action(reply)
        is_over = False if problem else self._stepped(action)
        if is_over or self._rounds >= self._game.rounds:
            value = self._game.score(self._total, is_over and not self._is_cut)
            why = f"the rewards sum to {self._total:g}: rounds={self._rounds}"
            return Score(value, success=value >= self._game.pass_mark, why=why)
        return Continue((Message("user", problem or self._told()),))

    def sampled(self, rng: random.Random) -> str:
        """Return a random action that the environment accepts."""
        self._made.action_space.seed(rng.randrange(2**31))
        return str(self._made.action_space.sample())

    async def close(self) -> None:
        """Close the environment."""
        self._made.close()

    def _stepped(self, action: Any) -> bool:
        try:
            self.observation, reward, has_ended, self._is_cut, _ = self._made.step(action)
        except Exception as error:
            raise EnvironmentFailedError(f"{self._name!r} raised {type(error).__name__}: {error}") from error
        self._total += float(reward)
        return bool(has_ended or self._is_cut)

    def _action(self, reply: str) -> tuple[Any, str]:
        """Return the action in `reply`, and the problem with it; "" if there is none."""
        named = list(named_actions(without_thinking(reply)))
        if len(named) != 1:
            return None, f"One 'Action:' per reply is taken; yours has {len(named)}. Nothing was done."
        action = named[0].strip(" \t`*.")
        if len(action) > _ACTION_CHARS:
            return None, f"An action has at most {_ACTION_CHARS} characters. Nothing was done."
        if not self._game.actions:
            is_legal = self._made.action_space.contains(action)
            return action, "" if is_legal else "That is no action here. Nothing was done."
        number = _number(self._game, action.lower())
        return number, "" if number is not None else f"There is no action {action!r:.80}. Nothing was done."

    def _told(self) -> str:
        return self._game.told(self.game, self.observation)


class GymnasiumEnvironment:
    """One id of gymnasium. The index is the seed of the game. Episodes share no state."""

    def __init__(self, name: str, game: Game) -> None:
        self._name = name
        self._id = member_of(name, PREFIX)
        self._game = game
        self._best: dict[int, int] | None = None
        self._lock = threading.Lock()  # makes sure that the best actions are computed once
        self.spec = EnvironmentSpec(
            name=name,
            summary=f"gymnasium's {self._id}, told in text",
            daily_rate=100.0,
            data_length=10_000,
            max_rounds=game.rounds,
            licence="MIT" if self._id in GAMES else "that of its package",
            source=f"gymnasium.make({self._id!r}), the index being the seed",
            chance_score=game.chance,
            solver_rate=game.solver_rate,
            tasks_are_drawn=True,
        )

    async def open(self, index: int, seed: int) -> GymnasiumEpisode:
        """Begin game `index`; `seed` is not used."""
        del seed
        return self._begun(index)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply with a random action, a repeated simple plan, or the action by value iteration or the blackjack table.

        If a game has neither a plan nor known transitions, all three reply with a random action.
        """
        del seed
        replies = [message.content for message in conversation if message.role == "assistant"]
        if kind == "greedy" and self._game.thumb:
            return f"Action: {self._game.thumb[len(replies) % len(self._game.thumb)]}"
        best = self._solved(index, replies) if kind == "solver" else None
        return f"Action: {best or self._any(index, rng)}"

    def _begun(self, index: int) -> GymnasiumEpisode:
        return GymnasiumEpisode(self._name, made_environment(self._name, self._id), self._game, index)

    def _any(self, index: int, rng: random.Random) -> str:
        return rng.choice(self._game.actions) if self._game.actions else self._begun(index).sampled(rng)

    def _solved(self, index: int, replies: Sequence[str]) -> str | None:
        """Return the best action after replaying `replies`; None if it cannot be known."""
        episode = self._begun(index)
        for reply in replies:
            episode.take(reply)
        if self._id == "Blackjack-v1":
            return basic_strategy(episode.observation)
        transitions = getattr(episode.game, "P", None)
        if transitions is None:
            return None
        with self._lock:
            if self._best is None:
                self._best = best_actions(transitions)
        return self._game.actions[self._best[int(episode.game.s)]]


class GymnasiumCollection:
    """Environments registered by gymnasium or by installed plugins that can be played in text."""

    prefix = PREFIX
    summary = "gymnasium's toy games in text; others whose observations and actions are text or numbers, by their id"
    extra = PREFIX

    def names(self) -> tuple[str, ...]:
        """Return the toy games, sorted. Others are found by name: only making one shows whether it is text."""
        registered = required("gymnasium", _FEATURE, PREFIX).registry
        return tuple(sorted(f"{PREFIX}:{one}" for one in GAMES if one in registered))

    def environment(self, name: str) -> GymnasiumEnvironment:
        """Make the environment `name`."""
        member = member_of(name, PREFIX)
        gym = required("gymnasium", _FEATURE, PREFIX)
        try:
            gym.spec(member)
        except (gym.error.Error, ModuleNotFoundError) as error:
            why, *_ = str(error).partition(" Did you mean")  # gymnasium's suggestion may not be playable in text
            raise unknown(name, self.names(), why.rstrip(".")) from error
        made = made_environment(name, member)
        game = GAMES.get(member) or _game(name, made, gym.spaces)
        made.close()
        return GymnasiumEnvironment(name, game)


def gymnasium_text() -> GymnasiumCollection:
    """Return the collection `gymnasium`."""
    return GymnasiumCollection()


def made_environment(name: str, member: str) -> Any:
    """Return a new environment of gymnasium, one that renders itself as text if it can.

    Raises:
        EnvironmentFailedError: if gymnasium cannot make it.
    """
    gym = required("gymnasium", _FEATURE, PREFIX)
    try:
        creator = gym.spec(member).entry_point
        made_by = gym.envs.registration.load_env_creator(creator) if isinstance(creator, str) else creator
        modes = getattr(made_by, "metadata", {})
        drawing = {"render_mode": "ansi"} if "ansi" in modes.get("render_modes", ()) else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gymnasium's advice to developers of environments
            return gym.make(member, disable_env_checker=True, **drawing)
    except Exception as error:
        raise EnvironmentFailedError(
            f"environment {name!r} cannot be made: {type(error).__name__}: {error}",
            next_step=f"Try it alone: python -c \"import gymnasium; gymnasium.make('{member}')\".",
        ) from error


def _game(name: str, made: Any, spaces: Any) -> Game:
    shown, acted = made.observation_space, made.action_space
    is_told = isinstance(shown, spaces.Text | spaces.Discrete)
    if not is_told or not isinstance(acted, spaces.Text | spaces.Discrete):
        raise EnvironmentFailedError(
            f"environment {name!r} cannot be played in text: it shows {shown} and takes {acted}",
            next_step="Name one whose observations and actions are Text or Discrete.",
        )
    return plain_game(int(acted.n) if isinstance(acted, spaces.Discrete) else None)


def _number(game: Game, action: str) -> int | None:
    if action in game.actions:
        return list(game.actions).index(action)
    return int(action) if action in map(str, range(len(game.actions))) else None
