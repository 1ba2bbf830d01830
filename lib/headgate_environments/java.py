"""A Java virtual machine that runs a game's jar in a child process: started, called, and reliably ended."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from py4j.java_gateway import (  # type: ignore[import-untyped]
    GatewayClient,
    GatewayParameters,
    JavaGateway,
    find_jar_path,
)
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]

from headgate.core import errors
from headgate.environments import java_runtime
from headgate.environments.shares import MODEL, FairSlots, Hold

T = TypeVar("T")

HEAP_MB: Final = 256
"""Enough for the largest world of the games; without a bound a virtual machine takes 1.8 GB and is no faster."""

START_TIMEOUT_S: Final = 60.0
"""A start takes 1 to 3 s, and a multiple of that when several start at once on few busy cores."""

CALL_TIMEOUT_S: Final = 60.0
"""The longest call, making a world together with its solution, takes 6 s on a busy core."""

_OPTIONS: Final = (
    f"-Xmx{HEAP_MB}m",
    "-XX:+UseSerialGC",  # the parallel collectors start a thread per core, which this small heap does not need
    "-XX:TieredStopAtLevel=1",  # the optimising compiler takes two fifths of the time of the first episodes
    "-XX:-UsePerfData",  # leaves no file in /tmp when the process is killed
)

_running: Final[set[JavaProcess]] = set()


class GameRaisedError(errors.EnvironmentFailedError):
    """The game raised an exception. Its virtual machine still answers, but must not be lent to another episode."""


class _Client(GatewayClient):  # type: ignore[misc]
    """Sends a command once and raises its failure; py4j's own client logs it, and sets up the root logger for that."""

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> str:  # noqa: ARG002 - py4j's signature
        connection = self._get_connection()
        try:
            answer: str = connection.send_command(command)
        except Py4JNetworkError:
            connection.close(True)
            raise
        self._give_back_connection(connection)
        return answer


class _Gateway(JavaGateway):  # type: ignore[misc]
    def _create_gateway_client(self) -> _Client:
        return _Client(gateway_parameters=self.gateway_parameters)


class JavaProcess:
    """One virtual machine and access to its classes. Used by one caller at a time; its calls block.

    It ends when it is killed, and when this process ends or is killed: it reads from a pipe that only this process
    holds, and exits at the pipe's end. Ctrl-C does not reach it, so that an episode can be closed. It runs in its own
    temporary folder, since games write into their working directory; the folder is removed when it ends.
    """

    def __init__(
        self,
        jar: Path,
        *,
        reads: Sequence[str] = (),
        options: Sequence[str] = (),
        call_timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Start the virtual machine; blocks for seconds.

        Args:
            jar: jar of the game.
            reads: names of the files beside the jar that the game expects in its working directory.
            options: options of the virtual machine, in addition to the default ones.
            call_timeout_s: how long one call may take before the virtual machine is killed.

        Raises:
            EnvironmentFailedError: if there is no Java runtime, or the virtual machine does not start.
        """
        java = [
            str(java_runtime().executable),
            *_OPTIONS,
            *options,
            "-cp",
            os.pathsep.join((find_jar_path(), str(jar))),
        ]
        self._owner = os.getpid()
        self._call_timeout_s = call_timeout_s
        self._has_raised = False
        self._gateway: Any = None
        self._folder = _folder_with(jar.parent / name for name in reads)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a runtime that was found, and a jar of an installed package
                [*java, "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self._folder,
            )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        _running.add(self)
        try:
            self._connect(*self._greeting())
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def folder(self) -> Path:
        """Its working directory."""
        return self._folder

    @property
    def can_be_lent(self) -> bool:
        """Whether it is alive and no call has raised: state left half changed could affect another episode."""
        return self._process.poll() is None and not self._has_raised

    def call(self, what: Callable[[Any], T]) -> T:
        """Return what `what` returns, called with the virtual machine's classes (py4j's `jvm`); blocks.

        Raises:
            GameRaisedError: if the game raises; further calls are possible.
            EnvironmentFailedError: if it does not answer in time, or has ended. It is then killed.
        """
        try:
            return what(self._gateway.jvm)
        except Py4JJavaError as error:
            self._has_raised = True
            raise GameRaisedError(f"the game raised {_raised_by_game(error)}") from error
        except (Py4JError, OSError) as error:
            self.kill()
            problem = _problem_of(error, self._call_timeout_s)
            raise errors.EnvironmentFailedError(f"the Java process of the game {problem}") from error

    def texts(self, what: Callable[[Any], Any]) -> tuple[str, ...]:
        """Return the strings of the Java list that `what` returns, then release the list; raises as `call` does."""

        def copied(jvm: Any) -> tuple[str, ...]:
            listed = what(jvm)
            found = tuple(str(text) for text in listed)
            self._gateway.detach(listed)
            return found

        return self.call(copied)

    def kill(self) -> None:
        """Kill it at once; a call in progress in another thread fails. May be called more than once."""
        try:
            _running.remove(self)  # only one of several concurrent threads succeeds
        except KeyError:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._gateway is not None:
            self._gateway.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _connect(self, port: int, token: str) -> None:
        parameters = GatewayParameters(
            port=port,
            auth_token=token,
            read_timeout=self._call_timeout_s,
            # Otherwise any thread that collects garbage here calls the virtual machine: it takes one caller at a time.
            enable_memory_management=False,
        )
        self._gateway = _Gateway(gateway_parameters=parameters)
        self.call(self._leave_nothing)

    def _leave_nothing(self, jvm: Any) -> None:
        """Have the virtual machine remove the folder when it exits because its owner was killed and cannot do it."""
        for path in (self._folder, *self._folder.iterdir()):  # Java deletes from the last to the first
            jvm.java.io.File(str(path)).deleteOnExit()

    def _greeting(self) -> tuple[int, str]:
        """Return the port and the token that py4j prints first; lines before them come from the Java runtime."""
        output = self._process.stdout
        assert output is not None
        deadline = threading.Timer(START_TIMEOUT_S, self._process.kill)
        deadline.start()
        try:
            said: list[str] = []
            for line in output:
                said.append(line.decode(errors="replace").strip())
                if said[-1].isdigit():
                    return int(said[-1]), output.readline().decode().strip()
        finally:
            deadline.cancel()
            # Nothing reads what the games print; the virtual machine goes on when it cannot write.
            output.close()
        why = said[-1][:200] if said else f"it printed nothing for {START_TIMEOUT_S:g} s"
        raise errors.EnvironmentFailedError(
            f"the Java process of the game does not start: {why}",
            next_step=f"Try `{java_runtime().executable} -version`; set JAVA_HOME to another Java runtime.",
        )

    def end_with_owner(self) -> None:
        """Kill it when this process ends; a fork of this process leaves it alone."""
        if self._owner == os.getpid():
            self.kill()


def _folder_with(files: Iterable[Path]) -> Path:
    """Return a new temporary folder with copies of `files`."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-java-"))
    try:
        for file in files:
            shutil.copyfile(file, folder / file.name)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _raised_by_game(error: Py4JJavaError) -> str:
    """Return the exception with its message; this asks the virtual machine, which must not have been killed."""
    try:
        return str(error).partition("\n: ")[2].partition("\n")[0][:200]
    except (Py4JError, OSError):
        return "an exception"


def _problem_of(error: Py4JError | OSError, timeout_s: float) -> str:
    if isinstance(getattr(error, "cause", error), TimeoutError):
        return f"did not answer within {timeout_s:g} s"
    if isinstance(error, Py4JNetworkError | OSError):
        return "ended prematurely"
    return f"does not understand the call: {error!s:.200}"


@atexit.register
def _end_all() -> None:
    for process in tuple(_running):
        process.end_with_owner()


PATIENCE_S: Final = 1.0
"""Minimum time before a game is taken away from a model that has more than its share."""

IDLE_S: Final = 3.0
"""An episode whose model thinks for longer gives its game to another model if there are more models than games. Its
calls so far are replayed later, which takes up to a second."""


class Playable(Protocol):
    """A game in a pool: its calls block, and it may have to be killed."""

    @property
    def can_be_lent(self) -> bool:
        """Whether it is alive and fit for another episode."""
        ...

    def kill(self) -> None:
        """Kill it; a call in progress in another thread fails. May be called more than once, also after its death."""
        ...


G = TypeVar("G", bound=Playable)


class Pool(Generic[G]):
    """At most `size` games in this process, over all event loops; models share them fairly, by `FairSlots`.

    An episode's first call starts a game if no idle one is left; the game stays warm afterwards. Lives as long as the
    process. Invariant: running and starting games never exceed `size`, not counting those being killed. Calls have
    their own threads: a call that hangs takes none from other work in threads.
    """

    def __init__(self, start: Callable[[], G], size: int, *, idle_s: float = IDLE_S) -> None:
        self._start = start
        self._idle: list[G] = []
        self._lock = threading.Lock()  # protects the idle games
        self.slots: Final = FairSlots(size, patience_s=PATIENCE_S, turn_s=idle_s)
        self.threads: Final = ThreadPoolExecutor(size, thread_name_prefix="headgate-game")

    async def lend(self) -> Loan[G]:
        """Return a loan of one game; waiting for it is a cancel point."""
        loan = Loan(self, MODEL.get())
        await loan.take_turn()
        return loan

    async def begun(self, begin: Callable[[G], T]) -> tuple[Loan[G], T]:
        """Return a loan of one game on which `begin` was called, and the result of that call."""
        loan = await self.lend()
        try:
            return loan, await loan.call(begin)
        except BaseException:
            loan.close()
            raise

    async def asked(self, what: Callable[[G], T]) -> T:
        """Return what `what` returns for a game that is lent for this call only."""
        loan, told = await self.begun(what)
        loan.close()
        return told

    def idle_or_new(self) -> G:
        """Return a game for a loan; blocks if one has to be started."""
        while (game := self._idle_one()) is not None:
            if game.can_be_lent:
                return game
            game.kill()
        return self._start()

    def keep(self, game: G) -> None:
        """Keep a game warm for the next loan."""
        with self._lock:
            self._idle.append(game)

    def _idle_one(self) -> G | None:
        with self._lock:
            return self._idle.pop() if self._idle else None


class Loan(Generic[G]):
    """The right to one game. Owned by one episode; closed exactly once, whatever its calls are doing.

    While the episode waits for its model, the game may go to an episode of another model. Its calls so far are then
    replayed on another game before its next call: games are deterministic.
    """

    def __init__(self, pool: Pool[G], model: str) -> None:
        self._pool = pool
        self._model = model
        self._hold: Hold | None = None
        self._game: G | None = None
        self._had: list[Callable[[G], object]] = []
        self._is_calling = False
        self._is_wanted_back = False
        self._is_closed = False
        self._is_cut_off = False
        # Protects all of the above; never held while calling the game or the slots.
        self._lock = threading.Lock()

    async def take_turn(self) -> None:
        """Wait for a slot."""
        hold = await self._pool.slots.take(self._model, self._give_back_soon)
        with self._lock:
            if not self._is_closed:
                self._hold = hold
                return
        self._pool.slots.give_back(hold)

    async def call(self, what: Callable[[G], T]) -> T:
        """Return what `what` returns for the game, run in a thread; one call at a time.

        Raises:
            EnvironmentFailedError: if the game fails or cannot be started, the loan is closed, or an earlier, cancelled
                call has not ended yet.
        """
        while not self._begins_call():
            await self.take_turn()
        called = self._pool.threads.submit(self._called, what)
        called.add_done_callback(lambda called: self._ended_call() if called.cancelled() else None)
        return await asyncio.wrap_future(called)

    def close(self) -> None:
        """Give the game back, or kill it if a cancelled call still uses it. May be called more than once."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            game, is_calling = self._game, self._is_calling
            # From here on the game has no owner, even if its call ends before it is killed.
            self._is_cut_off = is_calling and game is not None
        if not is_calling:
            self._give_back()
        elif game is not None:
            game.kill()  # the call fails, and its thread gives the slot back

    def _begins_call(self) -> bool:
        """Begin a call; return False if the loan has lost its slot."""
        with self._lock:
            if self._is_closed or self._is_calling:
                raise errors.EnvironmentFailedError("the game is called after its episode, or twice at once")
            self._is_calling = self._hold is not None
            self._use()
            return self._is_calling

    def _use(self) -> None:
        if self._hold is not None:
            self._hold.since = time.monotonic()

    def _called(self, what: Callable[[G], T]) -> T:
        try:
            done = what(self._game_to_call())
            self._had.append(what)
            return done
        finally:
            self._ended_call()

    def _ended_call(self) -> None:
        with self._lock:
            self._is_calling = False
            self._use()
            gives_back = self._is_closed or self._is_wanted_back
        if gives_back:
            self._give_back()

    def _game_to_call(self) -> G:
        """Return the loan's game. A game started for an episode that has ended meanwhile stays unused."""
        if self._game is not None:
            return self._game
        game = self._pool.idle_or_new()
        with self._lock:
            self._game = game
            if self._is_closed:
                raise errors.EnvironmentFailedError("the episode ended before its game had started")
        for again in self._had:
            again(game)
        return game

    def _give_back_soon(self) -> None:
        """Give the game to another model, now or when the call in progress has ended."""
        with self._lock:
            self._is_wanted_back = True
            is_idle = self._hold is not None and not self._is_calling
        if is_idle:
            self._give_back()

    def _give_back(self) -> None:
        """Give back game and slot; called last, by the caller that ends the turn or by the thread of a call."""
        with self._lock:
            game, hold, self._game, self._hold, self._is_wanted_back = self._game, self._hold, None, None, False
        if game is not None and (self._is_cut_off or not game.can_be_lent):
            game.kill()
        elif game is not None:
            self._pool.keep(game)
        if hold is not None:
            self._pool.slots.give_back(hold)
