"""Files of policy servers: named lists of them, each server with the tasks that it takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from headgate.jobqueue.generator.json_files import Problems, shown
from headgate.jobqueue.names import Name, checked_object, name_problem, object_text
from headgate.jobqueue.resource import ResourceSpec

_HOST: Final = re.compile(r"(wss://)?[A-Za-z0-9._:\[\]-]+", re.ASCII)
_HOST_CHARS: Final = 253
_ONCE: Final = "a server serves one job at a time, so list it once"


def _checked_host(host: str) -> str:
    if len(host) > _HOST_CHARS or not _HOST.fullmatch(host):
        raise ValueError(
            f"must be a host name or address of 1 to {_HOST_CHARS} characters, without path and without a scheme but wss://"
        )
    return host


def _tasks(value: object) -> frozenset[str]:
    if value is None:
        return frozenset()
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        raise ValueError("must be the name of a task or a list of such names")  # noqa: TRY004 - pydantic's protocol
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"must list names of tasks (got {shown(name)})")  # noqa: TRY004 - pydantic's protocol
        if (problem := name_problem(name)) is not None:
            raise ValueError(f"names a task that breaks a rule: {problem} (got {shown(name)})")
    return frozenset(names)


def _some_tasks(value: object) -> frozenset[str]:
    if value == []:
        raise ValueError("must name at least one task; leave it out when the server takes every one")
    return _tasks(value)


class ExactServer(BaseModel):
    """What Headgate knows of a server where the name of its list says something else."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    pool: Name


class ServerEntry(BaseModel):
    """A policy server as files have it; further fields but `headgate` are kept and passed on to workers."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    host: Annotated[str, AfterValidator(_checked_host)]
    port: Annotated[int, Field(ge=1, le=65_535)]
    compatible_task: Annotated[frozenset[str], BeforeValidator(_some_tasks)] = frozenset()
    not_compatible_task: Annotated[frozenset[str], BeforeValidator(_tasks)] = frozenset()
    headgate: ExactServer | None = None


def servers_of(
    document: object, source: str, pool_of: Callable[[str], str] = str
) -> dict[str, tuple[ResourceSpec, ...]]:
    """Return the servers under each name of a document, in its order.

    Args:
        document: name -> list of servers.
        source: the file, for messages.
        pool_of: returns the pool of the servers under a name, by default the name; an entry may name its own.

    Raises:
        InvalidJobError: listing every rule that the document breaks.
    """
    problems = Problems(source)
    found: dict[str, tuple[ResourceSpec, ...]] = {}
    if not isinstance(document, dict):
        problems.add("the document", "must be an object of lists of servers", document)
        document = {}
    for name, entries in document.items():
        if (problem := name_problem(name)) is not None:
            problems.add("the name of a list of servers", problem, name)
        elif not isinstance(entries, list) or not entries:
            problems.add(name, "must be a list of at least one server; leave the name out when it has none", entries)
        else:
            found[name] = _servers(name, entries, pool_of(name), problems)
    problems.refuse_if_any()
    return found


def servers_document(servers: Mapping[str, Iterable[ResourceSpec]]) -> dict[str, list[dict[str, Any]]]:
    """Return the document of named servers, each entry as it was registered."""
    return {name: [_entry(server) for server in listed] for name, listed in servers.items()}


def _entry(server: ResourceSpec) -> dict[str, Any]:
    """Return a server as files have it: as it came, with what the ledger goes by where that is not said."""
    entry: dict[str, Any] = json.loads(server.body)
    if entry.get("compatible_task") == []:
        del entry["compatible_task"]  # every task, which files say by leaving it out
    entry.setdefault("host", server.host)
    entry.setdefault("port", server.port)
    constraints = {"compatible_task": server.compatible_task, "not_compatible_task": server.not_compatible_task}
    for name, tasks in constraints.items():
        if tasks and not entry.get(name):
            entry[name] = sorted(tasks)
    return entry


def grouped(
    servers: Mapping[str, Sequence[ResourceSpec]], taken: Collection[str] = ()
) -> dict[str, tuple[ResourceSpec, ...]]:
    """Return servers in groups of equal constraints, named as in the legacy protocol: `{name}_{n}`, n from 1."""
    groups: dict[str, list[ResourceSpec]] = {}
    for name, listed in servers.items():
        free = (group for n in count(1) if (group := f"{name}_{n}") not in taken)
        names: dict[tuple[frozenset[str], frozenset[str]], str] = {}
        for server in listed:
            constraints = (server.compatible_task, server.not_compatible_task)
            group = names.get(constraints) or names.setdefault(constraints, next(free))
            groups.setdefault(group, []).append(replace(server, pool=group))
    return {group: tuple(listed) for group, listed in groups.items()}


def _servers(name: str, entries: list[Any], pool: str, problems: Problems) -> tuple[ResourceSpec, ...]:
    found: dict[tuple[str, int], ResourceSpec] = {}
    for position, entry in enumerate(entries):
        read = problems.checked(ServerEntry, entry, name, position)
        if read is None:
            continue
        try:
            body = object_text(checked_object({key: value for key, value in entry.items() if key != "headgate"}))
        except ValueError as error:
            problems.add(f"{name}[{position}]", str(error))
            continue
        spec = ResourceSpec(
            read.headgate.pool if read.headgate else pool,
            read.host,
            read.port,
            read.compatible_task,
            read.not_compatible_task,
            body,
        )
        if (before := found.setdefault(spec.address, spec)) is not spec:
            problems.add(f"{name}[{position}]", f"{_ONCE}: {before.host}:{before.port} stands before it")
    return tuple(found.values())
