"""A Java virtual machine beside this process that runs the jar of a game: started, called, and certainly ended."""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from py4j.java_gateway import (  # type: ignore[import-untyped]
    GatewayClient,
    GatewayParameters,
    JavaGateway,
    find_jar_path,
)
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]

from headgate.core import errors
from headgate.environments.java import java_runtime

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
    "-XX:-UsePerfData",  # leaves no file in /tmp when it is killed
)

_running: Final[set[JavaProcess]] = set()


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
    this process holds, and leaves at its end. Ctrl-C does not reach it, so that an episode can be closed.
    """

    def __init__(self, jar: Path, options: Sequence[str] = ()) -> None:
        """Start it with `jar` and further options; blocks for seconds.

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
        self._process = subprocess.Popen(  # noqa: S603 - a runtime that was found, and a jar of an installed package
            [*java, "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=jar.parent,  # where games read the data files that lie beside it
        )
        self._owner = os.getpid()
        self._gateway: Any = None
        _running.add(self)
        try:
            port, token = self._greeting()
        except BaseException:
            self.kill()
            raise
        parameters = GatewayParameters(
            port=port,
            auth_token=token,
            read_timeout=CALL_TIMEOUT_S,
            # Otherwise whatever thread collects garbage here calls the machine, which one caller at a time may use.
            enable_memory_management=False,
        )
        self._gateway = _Gateway(gateway_parameters=parameters)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def call(self, what: Callable[[Any], T]) -> T:
        """Return what `what` makes of the machine's classes (py4j's `jvm`); blocks.

        Raises:
            EnvironmentFailedError: if it does not answer in time, has ended, or the game raises. It is killed then.
        """
        try:
            return what(self._gateway.jvm)
        except Py4JJavaError as error:
            raised = _raised_by_game(error)
            self.kill()
            raise errors.EnvironmentFailedError(f"the game raised {raised}") from error
        except (Py4JError, OSError) as error:
            problem = "ended before its time" if self._has_ended() else f"did not answer within {CALL_TIMEOUT_S:g} s"
            self.kill()
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
        if self not in _running:
            return
        _running.discard(self)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._gateway is not None:
            self._gateway.close()

    def _has_ended(self) -> bool:
        """Return whether it has ended or is about to: its connections break a moment before it can be waited for."""
        try:
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            return False
        return True

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


def _raised_by_game(error: Py4JJavaError) -> str:
    """Return the exception with its message; the machine is asked for it, so it must not have been killed."""
    try:
        return str(error).partition("\n: ")[2].partition("\n")[0][:200]
    except (Py4JError, OSError):
        return "an exception"


@atexit.register
def _end_all() -> None:
    for process in tuple(_running):
        process.end_with_owner()
