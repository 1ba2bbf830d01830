"""A private PostgreSQL server for tests and benchmarks: real, durable, and removed with the context that started it."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from headgate.core.errors import MissingExtraError
from headgate.net.listener import free_port
from headgate_bench.postgres.binaries import (
    Account,
    PostgresFailedError,
    find_binaries,
    server_account,
    usable_binaries,
)

_USER: Final = "headgate"
_START_WITHIN_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.02
_STARTS: Final = 3
"""Number of attempts: a free port may be taken before the server binds it."""

_DISCONNECT: Final = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid();
ALTER DATABASE {name} RESET ALL;
"""

_EMPTY: Final = """
SET lock_timeout = '5s';
DO $$
DECLARE name text;
BEGIN
  FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', name);
  END LOOP;
END
$$;
CREATE SCHEMA public;
GRANT USAGE ON SCHEMA public TO PUBLIC;
"""

_GUARD: Final = Path(__file__).with_name("guard.sh")


class PrivatePostgres:
    """A private PostgreSQL server on loopback and on a Unix socket, in a temporary folder.

    Owned by the context that starts it. Its connections need a random password. It never outlives this process: it
    stops with the context, and also when this process is killed. `fsync` is on, as in production. Root runs it as
    `nobody`, because PostgreSQL refuses to run as root.

    Args:
        settings: further settings of the server, such as `{"max_connections": "200"}`.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})
        self._account = server_account()
        self._password = secrets.token_hex(16)
        self._folder: Path | None = None
        self._binaries = Path()
        self._guard: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._made = 0
        self._empty: list[str] = []

    @property
    def folder(self) -> Path:
        """The folder of its data, socket and log, while the server exists."""
        assert self._folder is not None, "the server has not been started"
        return self._folder

    @property
    def port(self) -> int:
        """Its port on 127.0.0.1; the same after a restart, unless another process has taken it meanwhile."""
        return self._port

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database, with its password, as libpq and SQLAlchemy read it."""
        return f"postgresql://{_USER}:{self._password}@127.0.0.1:{self._port}/{quote(database)}"

    def socket_url(self, database: str = "postgres") -> str:
        """Return the address of a database through the Unix socket, which is a little faster than TCP."""
        place = f"host={quote(str(self.folder), safe='')}&port={self._port}"
        return f"postgresql:///{quote(database)}?user={_USER}&password={self._password}&{place}"

    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        """Yield the address of an empty database; at the end of the context its connections are closed.

        Databases are emptied and reused, because creating and dropping one writes to the disk for much longer.
        """
        name = self._empty.pop() if self._empty else self._made_database()
        try:
            yield self.url(name)
        finally:
            if self._is_emptied(name):
                self._empty.append(name)
            else:
                self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def stop(self, *, immediately: bool = False) -> None:
        """Stop the server and keep its data; `start` resumes it. Does nothing if it is not running.

        Args:
            immediately: stop as in a power cut, without a checkpoint, so that the next start recovers from the log.
        """
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None
        with suppress(BrokenPipeError):
            guard.stdin.write(b"QUIT\n" if immediately else b"INT\n")
        guard.wait()
        guard.stdin.close()

    def start(self) -> None:
        """Start the server, with its data from before `stop`.

        Raises:
            PostgresFailedError: if it does not come up; the message has the end of its log.
        """
        assert self._guard is None, "the server runs"
        for _ in range(_STARTS):
            self._port = self._port or free_port()
            self._guard = self._launch()
            if self._is_up():
                return
            self.stop()
            self._port = 0
            if "could not bind" not in self._last_lines():
                break
        raise PostgresFailedError(f"the PostgreSQL server did not start and said:\n{self._last_lines()}")

    def __enter__(self) -> Self:
        """Create and start the server.

        Raises:
            PostgresMissingError: if this machine has no PostgreSQL programs.
            PostgresFailedError: if they cannot be run or the server does not come up.
            MissingExtraError: if psycopg is not installed.
        """
        binaries = find_binaries()
        self._folder = _folder_of(self._account)
        try:
            self._binaries = usable_binaries(binaries, self._account, self._folder / "programs")
            self._make_cluster()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server and remove its folder."""
        self.close()

    def close(self) -> None:
        """Stop the server and remove its folder; may be called twice."""
        self.stop(immediately=True)  # its data is deleted, so a checkpoint would be useless
        folder, self._folder, self._empty = self._folder, None, []
        if folder is not None:
            shutil.rmtree(folder)

    def _make_cluster(self) -> None:
        password = self.folder / "password"
        password.touch(mode=0o600)
        password.write_text(self._password)
        self._account.own(password)
        options = ["--username", _USER, "--pwfile", str(password), "--auth", "scram-sha-256", "--encoding", "UTF8"]
        options += ["--locale", "C", "--no-sync", "--no-instructions", "--pgdata", str(self.folder / "data")]
        ended = subprocess.run(  # noqa: S603 - a program that was looked for, or that the user named
            [str(self._binaries / "initdb"), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd=self.folder,
            env=_environ(),
            **self._account.process_arguments(),
        )
        password.unlink()
        if ended.returncode != 0:
            raise PostgresFailedError(f"initdb failed and said:\n{ended.stdout.strip()}")

    def _launch(self) -> subprocess.Popen[bytes]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": str(self.folder),
            **self._settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._binaries / "postgres"), "-D", str(self.folder / "data"), *options]
        log = self.folder / "server.log"
        log.touch()
        self._account.own(log)
        with log.open("wb") as output:
            return subprocess.Popen(  # noqa: S603 - as above
                ["/bin/sh", str(self._guard_program()), str(self.folder), *command],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=_environ(),
                start_new_session=True,  # a terminal's Ctrl-C is for this process, which stops the server itself
                **self._account.process_arguments(),
            )

    def _guard_program(self) -> Path:
        copy = self.folder / _GUARD.name  # the server's account may not be able to read this package
        if not copy.exists():
            shutil.copyfile(_GUARD, copy)
            copy.chmod(0o755)
        return copy

    def _is_up(self) -> bool:
        assert self._guard is not None
        deadline = time.monotonic() + _START_WITHIN_S
        while self._guard.poll() is None and time.monotonic() < deadline:
            if "ready to accept connections" in self._last_lines():
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def _last_lines(self, count: int = 15) -> str:
        text = (self.folder / "server.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-count:])

    def _made_database(self) -> str:
        self._made += 1
        name = f"fresh_{self._made}"
        self._execute(f"CREATE DATABASE {name}")
        return name

    def _is_emptied(self, name: str) -> bool:
        """Empty a database; return False if that fails: it is gone, or a prepared transaction locks its tables."""
        import psycopg  # noqa: PLC0415 - an optional extra

        try:
            self._execute(_DISCONNECT.format(name=name))
            self._execute(_EMPTY, name)
        except psycopg.Error:
            return False
        return True

    def _execute(self, statement: str, database: str = "postgres") -> None:
        try:
            import psycopg  # noqa: PLC0415 - an optional extra
        except ModuleNotFoundError as error:
            raise MissingExtraError("A PostgreSQL database", "postgres") from error
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())


def _folder_of(account: Account) -> Path:
    """Create the server's folder where its account can reach it; a Unix socket's path has at most 107 bytes."""
    wanted = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108 - mkdtemp makes it private
    parent = next((p for p in wanted if account.uid is None or _is_open(p)), wanted[0])
    folder = Path(tempfile.mkdtemp(prefix="headgate-postgres-", dir=parent))
    account.own(folder)
    return folder


def _is_open(folder: Path) -> bool:
    """Return whether any account can enter the folder and all its parents."""
    return folder.is_dir() and all(p.stat().st_mode & stat.S_IXOTH for p in (folder, *folder.resolve().parents))


def _environ() -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
