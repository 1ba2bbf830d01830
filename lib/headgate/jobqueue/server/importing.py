"""Imports files when a server starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.generator import imported_jobs, read_json, resources_of
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import ImportedJob, Instant, Submitted
from headgate.jobqueue.resource import ResourceSpec


@dataclass(frozen=True, slots=True)
class Imports:
    """What files say.

    Attributes:
        jobs: in their order.
        resources: in their order.
    """

    jobs: Sequence[ImportedJob] = ()
    resources: Sequence[ResourceSpec] = ()

    def into(self, ledger: Ledger, at: Instant) -> Submitted:
        """Take everything in; what is there with the same contents is left alone.

        Raises:
            JobConflictError: a job is there with other contents; nothing was taken in.
        """
        submitted = ledger.adopt(self.jobs, at)
        ledger.add_resources(self.resources, at)
        return submitted


def read_imports(files: Sequence[Path]) -> Imports:
    """Return what files say: a list is a `jobs.json`, an object a `resources.json`; at most one of each.

    Raises:
        InvalidInputError: for two of a kind.
        InvalidJobError: for a file that cannot be read or breaks a rule.
    """
    jobs_file: tuple[str, list[Any]] | None = None
    servers_file: tuple[str, Any] | None = None
    for file in files:
        document = read_json(file, "file of jobs or policy servers")
        if isinstance(document, list) and jobs_file is None:
            jobs_file = str(file), document
        elif not isinstance(document, list) and servers_file is None:
            servers_file = str(file), document
        else:
            kind = "jobs" if isinstance(document, list) else "policy servers"
            raise InvalidInputError(f"{file} is a second file of {kind}", next_step="Import one file of each kind.")
    jobs = [] if jobs_file is None else imported_jobs(jobs_file[1], jobs_file[0])
    if servers_file is None:
        return Imports(jobs)
    return Imports(jobs, resources_of(servers_file[1], (job.spec for job in jobs), servers_file[0]))
