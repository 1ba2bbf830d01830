"""A Java virtual machine beside this process that runs the jar of a game: started, called, and certainly ended."""

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
"""Enough for the largest world of the games; without a bound a machine takes 1.8 GB and is no faster."""

START_TIMEOUT_S: Final = 60.0
"""A start takes 1 to 3 s, and several at once on few busy cores so many times longer."""

CALL_TIMEOUT_S: Final = 60.0
"""The longest call, making a world together with its solution, takes 6 s on a busy core."""

_OPTIONS: Final = (
    f"-Xmx{HEAP_MB}m",
    "-XX:+UseSerialGC",  # the parallel collectors start a thread per core for a heap that needs none
    "-XX:TieredStopAtLevel=1",  # the slower compiler takes two fifths of the time until the first episodes are over
    "-XX:-UsePerfData",  # leaves no file in /tmp when it is killed
)

_running: Final[set[JavaProcess]] = set()


class GameRaisedError(errors.EnvironmentFailedError):
    """The game raised an exception. Its machine still answers, but may be lent to nobody else."""


class _Client(GatewayClient):  # type: ignore[misc]
    """Sends a command once and raises what fails; py4j's own logs it to the root logger, which that sets up."""

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
    """One virtual machine and the way to its classes. Used by one caller at a time; its calls block.

    It ends when it is killed, when this process ends, and when this process is killed: it reads from a pipe that only
    this process holds, and leaves at its end. Ctrl-C does not reach it, so that an episode can be closed. It runs in a
    temporary folder of its own, since games write into the one they run in; the folder goes with it.
    """

    def __init__(
        self,
        jar: Path,
        *,
        reads: Sequence[str] = (),
        options: Sequence[str] = (),
        call_timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Start it; blocks for seconds.

        Args:
            jar: of the game.
            reads: names of the files beside the jar that the game looks for in the folder where it runs.
            options: of the virtual machine, besides our own.
            call_timeout_s: how long one call may take before the machine is given up.

        Raises:
            EnvironmentFailedError: if there is no Java runtime, or it does not start.
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
        """Where it runs."""
        return self._folder

    @property
    def can_be_lent(self) -> bool:
        """Whether it has not ended, and no call raised: what it left half done could reach another episode."""
        return self._process.poll() is None and not self._has_raised

    def call(self, what: Callable[[Any], T]) -> T:
        """Return what `what` makes of the machine's classes (py4j's `jvm`); blocks.

        Raises:
            GameRaisedError: if the game raises; it can be called further.
            EnvironmentFailedError: if it does not answer in time, or has ended. It is killed then.
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
        """Return the strings of the Java list that `what` gives, which the machine then forgets; raises as `call`."""

        def copied(jvm: Any) -> tuple[str, ...]:
            listed = what(jvm)
            found = tuple(str(text) for text in listed)
            self._gateway.detach(listed)
            return found

        return self.call(copied)

    def kill(self) -> None:
        """End it at once; a call that is under way in another thread fails. Legal more than once."""
        try:
            _running.remove(self)  # one of several threads at once
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
            # Otherwise whatever thread collects garbage here calls the machine, which one caller at a time may use.
            enable_memory_management=False,
        )
        self._gateway = _Gateway(gateway_parameters=parameters)
        self.call(self._leave_nothing)

    def _leave_nothing(self, jvm: Any) -> None:
        """Have the machine remove the folder when it leaves because its owner was killed, and cannot do it."""
        for path in (self._folder, *self._folder.iterdir()):  # it goes through them from the last to the first
            jvm.java.io.File(str(path)).deleteOnExit()

    def _greeting(self) -> tuple[int, str]:
        """Return the port and the token that it says first; what it says before belongs to the runtime, not to us."""
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
            # What the games print is nobody's; the machine goes on when it cannot write.
            output.close()
        why = said[-1][:200] if said else f"it said nothing for {START_TIMEOUT_S:g} s"
        raise errors.EnvironmentFailedError(
            f"the Java process of the game does not start: {why}",
            next_step=f"Try `{java_runtime().executable} -version`; set JAVA_HOME to another Java runtime.",
        )

    def end_with_owner(self) -> None:
        """End it when this process does; a fork of this process leaves it alone."""
        if self._owner == os.getpid():
            self.kill()


def _folder_with(files: Iterable[Path]) -> Path:
    """Return a new temporary folder that holds copies of `files`."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-java-"))
    try:
        for file in files:
            shutil.copyfile(file, folder / file.name)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _raised_by_game(error: Py4JJavaError) -> str:
    """Return the exception with its message; the machine is asked for it, so it must not have been killed."""
    try:
        return str(error).partition("\n: ")[2].partition("\n")[0][:200]
    except (Py4JError, OSError):
        return "an exception"


def _problem_of(error: Py4JError | OSError, timeout_s: float) -> str:
    if isinstance(getattr(error, "cause", error), TimeoutError):
        return f"did not answer within {timeout_s:g} s"
    if isinstance(error, Py4JNetworkError | OSError):
        return "ended before its time"
    return f"does not know what it is asked: {error!s:.200}"


@atexit.register
def _end_all() -> None:
    for process in tuple(_running):
        process.end_with_owner()


PATIENCE_S: Final = 1.0
"""A game that a model has above its share is not taken from it sooner."""

IDLE_S: Final = 3.0
"""An episode whose model thinks for longer gives its game to another model's where there are more models than games.
What it has done is done again later, which takes up to a second."""


class Playable(Protocol):
    """What a pool holds: something that blocks, and may have to be killed."""

    @property
    def can_be_lent(self) -> bool:
        """Whether it is alive and fit for another episode."""
        ...

    def kill(self) -> None:
        """End it; a call that is under way in another thread fails. Legal more than once, also once it is dead."""
        ...


G = TypeVar("G", bound=Playable)


class Pool(Generic[G]):
    """At most `size` games in this process, whatever the number of event loops; shared among models as `FairSlots` are.

    A game is started by the first call of an episode that gets none of the idle ones, and stays warm afterwards.
    Lives as long as the process. Invariant: games and those being started never exceed `size`, but for those being
    killed. Calls have threads of their own: one that hangs keeps none from what else runs in threads.
    """

    def __init__(self, start: Callable[[], G], size: int, *, idle_s: float = IDLE_S) -> None:
        self._start = start
        self._idle: list[G] = []
        self._lock = threading.Lock()  # protects the idle ones
        self.slots: Final = FairSlots(size, patience_s=PATIENCE_S, turn_s=idle_s)
        self.threads: Final = ThreadPoolExecutor(size, thread_name_prefix="headgate-game")

    async def lend(self) -> Loan[G]:
        """Return the right to one game; waiting for it is a cancel point."""
        loan = Loan(self, MODEL.get())
        await loan.take_turn()
        return loan

    async def begun(self, begin: Callable[[G], T]) -> tuple[Loan[G], T]:
        """Return the right to one game on which `begin` was called, and what that gave."""
        loan = await self.lend()
        try:
            return loan, await loan.call(begin)
        except BaseException:
            loan.close()
            raise

    async def asked(self, what: Callable[[G], T]) -> T:
        """Return what `what` gives for a game that is lent for this alone."""
        loan, told = await self.begun(what)
        loan.close()
        return told

    def idle_or_new(self) -> G:
        """Return a game for a loan; blocks where one has to be started."""
        while (game := self._idle_one()) is not None:
            if game.can_be_lent:
                return game
            game.kill()
        return self._start()

    def keep(self, game: G) -> None:
        """Keep a game warm for the next one."""
        with self._lock:
            self._idle.append(game)

    def _idle_one(self) -> G | None:
        with self._lock:
            return self._idle.pop() if self._idle else None


class Loan(Generic[G]):
    """The right to one game. Owned by one episode; closed exactly once, whatever its calls are doing.

    While the episode waits for its model the game may go to one of another model. The calls that it has had are then
    made again, on another game, before the next one: games play equally whenever they are asked the same.
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
        # Protects all of the above; never held while the game is called, or the slots are.
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
        """Return what `what` gives for the game, run in a thread; one call at a time.

        Raises:
            EnvironmentFailedError: if the game fails or cannot be started, the loan is closed, or an earlier, cancelled
                call has not ended.
        """
        while not self._begins_call():
            await self.take_turn()
        called = self._pool.threads.submit(self._called, what)
        called.add_done_callback(lambda called: self._ended_call() if called.cancelled() else None)
        return await asyncio.wrap_future(called)

    def close(self) -> None:
        """Give the game back; kill it instead when a cancelled call still uses it. Legal more than once."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            game, is_calling = self._game, self._is_calling
            # From here on the game is nobody's, even if its call ends before it is killed.
            self._is_cut_off = is_calling and game is not None
        if not is_calling:
            self._give_back()
        elif game is not None:
            game.kill()  # the call fails, and its thread gives back

    def _begins_call(self) -> bool:
        """Begin a call; return False when the turn is over."""
        with self._lock:
            if self._is_closed or self._is_calling:
                raise errors.EnvironmentFailedError("the game is asked after its episode, or twice at once")
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
        """Return the game of the loan. One that was started for an episode that has ended meanwhile stays untouched."""
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
        """Give the game to another model, now or when the call has ended that is under way."""
        with self._lock:
            self._is_wanted_back = True
            is_idle = self._hold is not None and not self._is_calling
        if is_idle:
            self._give_back()

    def _give_back(self) -> None:
        """End the turn: called by whoever is last, the one who ends it or the thread of a call."""
        with self._lock:
            game, hold, self._game, self._hold, self._is_wanted_back = self._game, self._hold, None, None, False
        if game is not None and (self._is_cut_off or not game.can_be_lent):
            game.kill()
        elif game is not None:
            self._pool.keep(game)
        if hold is not None:
            self._pool.slots.give_back(hold)
