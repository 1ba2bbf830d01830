"""`textarena:<game>`: games of textarena for one player, or for two, with an opponent that plays at random."""

from __future__ import annotations

import contextlib
import copy
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from headgate.core import Message
from headgate.core.errors import EnvironmentFailedError
from headgate.environments import BaselineKind, Continue, EnvironmentSpec, Score, failed
from headgate.environments.answers import without_thinking
from headgate_environments.collections.members import ListedCollection, OwnDice, required

CHANCE: Final[Mapping[str, float]] = {
    "Briscola-v0": 0.35,
    "Chopsticks-v0": 0.45,
    "Chopsticks-v0-long": 0.6,
    "Chopsticks-v0-medium": 0.45,
    "ConnectFour-v0": 0.35,
    "ConnectFour-v0-blind": 0.45,
    "ConnectFour-v0-large": 0.55,
    "FifteenPuzzle-v0": 0.0,
    "FrozenLake-v0": 0.05,
    "FrozenLake-v0-hardcore": 0.0,
    "FrozenLake-v0-random": 0.0,
    "GuessTheNumber-v0": 0.5,
    "GuessTheNumber-v0-hardcore": 0.15,
    "KuhnPoker-v0": 0.55,
    "KuhnPoker-v0-long": 0.35,
    "KuhnPoker-v0-medium": 0.35,
    "KuhnPoker-v0-short": 0.5,
    "LightsOut-v0": 0.0,
    "Mastermind-v0": 0.05,
    "Nim-v0": 0.6,
    "Nim-v0-large": 0.4,
    "Nim-v0-medium": 0.4,
    "PigDice-v0": 0.5,
    "PigDice-v0-50": 0.35,
    "PigDice-v0-short": 0.4,
    "Secretary-v0": 0.2,
    "Secretary-v0-long": 0.1,
    "SimpleTak-v0": 0.55,
    "SimpleTak-v0-large": 0.625,
    "SimpleTak-v0-medium": 0.475,
    "Sudoku-v0": 0.2,
    "Sudoku-v0-easy": 0.1,
}
"""Mean score over tasks 0 to 19 of random moves that the game accepts. The other games are not measured."""

_BRACKETS: Final = re.compile(r"\[[^\[\]\n]{1,20}\]")
_LISTED: Final = re.compile(r"(?:available|valid) (?:moves|actions)[^\n]*", re.IGNORECASE)

Moves = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class ArenaGame:
    """One game of textarena.

    Attributes:
        players: 1 or 2.
        moves: returns candidate moves for the last text shown; each is tried on a copy, and dropped if refused.
        is_fixed: whether all indices are the same task.
    """

    players: int
    moves: Moves
    is_fixed: bool = False


def listed(shown: str) -> list[str]:
    """Return the moves in the last list of moves that the game shows in `shown`."""
    lists = _LISTED.findall(shown)
    return _BRACKETS.findall(lists[-1]) if lists else []


def _of(template: str, *choices: Sequence[object]) -> Moves:
    moves = tuple(template.format(*chosen) for chosen in product(*choices))
    return lambda _: moves


def _either(*moves: Moves) -> Moves:
    return lambda shown: [move for one in moves for move in one(shown)]


_STEPS: Final = _of("[{}]", ("up", "down", "left", "right"))
_CELLS: Final = _of("[{} {}]", range(10), range(10))
_DISKS: Final = _of("[{} {}]", "ABC", "ABC")
_PIECES: Final = _either(_of("[attack {} {}]", range(2), range(2)), _of("[split {} {}]", range(5), range(5)))


def _variants(game: str, *suffixes: str) -> Iterator[str]:
    yield from (f"{game}-v0{suffix}" for suffix in ("", *suffixes))


def _entries() -> Iterator[tuple[str, ArenaGame]]:
    single: tuple[tuple[Iterator[str], Moves, bool], ...] = (
        (_variants("FifteenPuzzle"), _STEPS, False),
        (_variants("FrozenLake", "-random", "-hardcore"), _STEPS, False),
        (_variants("GuessTheNumber", "-hardcore"), _of("[{}]", range(1, 51)), False),
        (_variants("LightsOut"), _CELLS, False),
        (_variants("Mastermind"), _of("[{} {} {} {}]", *[range(1, 7)] * 4), False),
        (_variants("Secretary", "-long"), _of("[{}]", ("accept", "continue")), False),
        (_variants("Sokoban"), _STEPS, False),
        (_variants("Sudoku", "-very-easy", "-easy", "-medium", "-hard"), _of("[{} {} {}]", *[range(1, 10)] * 3), False),
        (_variants("TowerOfHanoi", "-medium", "-hard", "-hardcore", "-extreme"), _DISKS, True),
    )
    for names, moves, is_fixed in single:
        for name in names:
            yield name, ArenaGame(1, moves, is_fixed)
    double: tuple[tuple[Iterator[str], Moves], ...] = (
        (_variants("Briscola"), _of("[play {}]", range(1, 4))),
        (_variants("Chopsticks", "-medium", "-long"), _PIECES),
        (_variants("ConnectFour", "-blind", "-large"), _of("[col {}]", range(12))),
        (_variants("KuhnPoker", "-short", "-medium", "-long"), listed),
        (_variants("Nim", "-medium", "-large"), _of("[{} {}]", range(8), range(1, 10))),
        (_variants("PigDice", "-short", "-50"), listed),
        (_variants("SimpleTak", "-medium", "-large"), listed),
        (_variants("TicTacToe"), listed),
        (_variants("WildTicTacToe"), listed),
    )
    for names, moves in double:
        for name in names:
            yield name, ArenaGame(2, moves)


GAMES: Final[Mapping[str, ArenaGame]] = dict(_entries())
"""Games that start without downloads and keys on Python 3.11 and end within a few dozen replies.

Left out: word games (they download lists), debates before a judge (they need a key), games of three or more players,
2048 (its small goals are reached by chance, the others not in 100 replies), games for two whose moves our opponent
cannot read from the text, Minesweeper, which forgives the first mine, and Othello and QuantumTicTacToe, in which a
player may have no move.
"""


PREFIX: Final = "textarena"
MAX_ROUNDS: Final = 100
TRIED_MOVES: Final = 200
"""Candidate moves that our opponent tries before it gives up."""

_MOVE: Final = re.compile(r"\[[^\[\]\n]{1,200}\]")
_HOW_TO_MOVE: Final = "Reply with one move in square brackets; of several, the last one counts."


class ArenaPlay:
    """The state of one game. It has its own random numbers, unaffected by other users of the global generators."""

    def __init__(self, member: str, game: ArenaGame, index: int) -> None:
        arena = required("textarena", f"environment '{PREFIX}:{member}'", PREFIX)
        self._dice = OwnDice(index)
        self._game = game
        self._shown: dict[int, str] = {}
        self.result: dict[int, Any] | None = None
        with self._dice.thrown():
            self._made = arena.make(f"{member}-raw")
            self._made.reset(num_players=game.players, seed=index)
            self._look()

    @property
    def player(self) -> int:
        """The player to move."""
        return int(self._made.state.current_player_id)

    def move(self, move: str) -> None:
        """Make a move, legal or not.

        Raises:
            Exception: whatever the game raises.
        """
        with self._dice.thrown():
            is_over, _ = self._made.step(move)
            if is_over:
                self.result = self._made.close()[0] or {}
            else:
                self._look()

    def told(self, player: int) -> str:
        """Return the text shown to `player` since the last call."""
        return self._shown.pop(player, "").strip()

    def was_illegal(self, player: int) -> bool:
        """Return whether the game refused the last move."""
        return bool(self._made.state.error_count or self._made.state.game_info[player]["invalid_move"])

    def value(self, player: int) -> float:
        """Return the score of a finished game: 1, 0.5 or 0 for two players; for one, 1 at the goal, else 0.

        textarena's partial rewards of a single player for progress do not count: wild guesses get half of them or more.
        """
        reward = (self.result or {}).get(player, 0.0)
        if self.was_illegal(player) or not isinstance(reward, int | float) or math.isnan(reward):
            return 0.0
        if self._game.players == 1:
            return float(reward >= 1.0)
        return min(1.0, max(0.0, (float(reward) + 1.0) / 2.0))

    def legal_moves(self, shown: str, rng: random.Random) -> Iterator[tuple[str, ArenaPlay]]:
        """Yield the moves that the game accepts, in random order, each with the game after it."""
        candidates = list(dict.fromkeys(self._game.moves(shown)))
        rng.shuffle(candidates)
        for move in candidates[:TRIED_MOVES]:
            after = copy.deepcopy(self)
            with contextlib.suppress(Exception):
                after.move(move)
                if not after.was_illegal(self.player):
                    yield move, after

    def _look(self) -> None:
        player, seen = self._made.get_observation()
        lines = [
            message if sender < 0 else f"Player {sender}: {message}" for sender, message, _ in seen if sender != player
        ]
        self._shown[player] = "\n".join([self._shown.get(player, ""), *lines])


class ArenaEpisode:
    """One game of the model. Owned by one worker; holds memory only.

    Attributes:
        play: the game itself.
        player: number of the player that the model plays.
        shown: last text shown to the model.
    """

    def __init__(self, member: str, game: ArenaGame, index: int) -> None:
        self._name = f"{PREFIX}:{member}"
        self.play = ArenaPlay(member, game, index)
        self.player = index % game.players
        self._opponent = random.Random(f"{self._name}:{index}")
        self._rounds = 0
        self._others_move()
        self.shown = self.play.told(self.player)
        self.opening = (Message("user", f"{self.shown}\n\n{_HOW_TO_MOVE}"),)

    async def answer(self, reply: str) -> Continue | Score:
        """Make the move in `reply`."""
        return self.take(reply)

    def take(self, reply: str) -> Continue | Score:
        """Make the move in `reply`, as `answer` does.

        Raises:
            EnvironmentFailedError: if our opponent finds no move.
        """
        self._rounds += 1
        moves = _MOVE.findall(without_thinking(reply)[-20_000:])
        try:
            self.play.move(moves[-1] if moves else "")
        except Exception as error:  # noqa: BLE001 - the game accepts other moves, so the error is this move's fault
            return failed(f"the game cannot take the move: {type(error).__name__}: {error}")
        self._others_move()
        if self.play.result is not None:
            value = self.play.value(self.player)
            return Score(value, success=value >= 1.0, why=f"{_outcome(self.play, self.player)}: rounds={self._rounds}")
        if self._rounds >= MAX_ROUNDS:
            return failed(f"the game is not over: rounds={self._rounds}")
        self.shown = self.play.told(self.player)
        return Continue((Message("user", self.shown or "Go on."),))

    async def close(self) -> None:
        """Free nothing."""

    def _others_move(self) -> None:
        while self.play.result is None and self.play.player != self.player:
            shown = self.play.told(self.play.player)
            found = next(self.play.legal_moves(shown, self._opponent), None)
            if found is None:
                raise EnvironmentFailedError(f"the other player of {self._name!r} finds no move that the game takes")
            self.play = found[1]


class ArenaEnvironment:
    """One game of textarena; the index is its seed, and decides who begins. Episodes share no state."""

    def __init__(self, member: str, game: ArenaGame) -> None:
        self._member = member
        self._game = game
        opponent = "; the other player draws from the legal moves" if game.players == 2 else ""
        self.spec = EnvironmentSpec(
            name=f"{PREFIX}:{member}",
            summary=f"textarena's {member} for {game.players}{opponent}",
            daily_rate=100.0,
            data_length=1 if game.is_fixed else 10_000,
            max_rounds=MAX_ROUNDS,
            reply_chars=100_000,
            licence="MIT",
            source=f"{member} of textarena, the index being the seed",
            chance_score=CHANCE.get(member),
            solver_rate=0.0,
            tasks_are_drawn=not game.is_fixed,
        )

    async def open(self, index: int, seed: int) -> ArenaEpisode:
        """Begin game `index`; `seed` is not used."""
        del seed
        return self._begun(index)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply with a legal move: a random one (`random`), or the one that ends the game at once with the best score.

        If no move ends the game, any is taken. No solution is known: `solver` plays as `greedy` does.
        """
        del seed
        episode = self._begun(index)
        for message in conversation:
            if message.role == "assistant":
                episode.take(message.content)
        legal = episode.play.legal_moves(episode.shown, rng)
        first = next(legal, ("[]", episode.play))
        if kind == "random":
            return first[0]
        best = max([first, *legal], key=lambda found: found[1].value(episode.player) if found[1].result else -1.0)
        return best[0]

    def _begun(self, index: int) -> ArenaEpisode:
        try:
            return ArenaEpisode(self._member, self._game, index)
        except (SyntaxError, ValueError, LookupError, OSError, AssertionError) as error:
            raise EnvironmentFailedError(
                f"environment {self.spec.name!r} cannot begin: {type(error).__name__}: {error}"
            ) from error


class ArenaCollection(ListedCollection):
    """The games of `GAMES`."""

    prefix = PREFIX
    summary = "Games of textarena for one, or for two against a player that draws from the legal moves"
    extra = PREFIX

    def _members(self) -> Iterable[str]:
        required("textarena", f"collection {PREFIX!r}", PREFIX)
        return GAMES

    def _made(self, member: str) -> ArenaEnvironment:
        return ArenaEnvironment(member, GAMES[member])


def text_arena() -> ArenaCollection:
    """Return the collection `textarena`."""
    return ArenaCollection()


def _outcome(play: ArenaPlay, player: int) -> str:
    return (
        "an illegal move ended the game" if play.was_illegal(player) else f"the game is over with {play.result!r:.80}"
    )
