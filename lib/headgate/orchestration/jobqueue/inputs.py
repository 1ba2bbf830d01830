"""From what a flow run is given to a job queue."""

from __future__ import annotations

from collections.abc import Sequence

from blocks import JobQueueServer, loaded_block
from headgate.core import errors
from headgate.jobqueue.worker import queue_address


async def job_queue_for(name: str) -> JobQueueServer:
    """Return the job queue of a block, or the one that the worker's variables name when no block is.

    Raises:
        InvalidInputError: if there is no such block, or the address cannot be used.
    """
    if not name:
        address = queue_address()
        return JobQueueServer(url=address.url, token=address.token.reveal())
    return await loaded_block(JobQueueServer, name)


def checked_command(workers: int, command: Sequence[str]) -> None:
    """Refuse workers without a command, and a command without workers.

    Raises:
        InvalidInputError: if one is given without the other.
    """
    if workers and not command:
        raise errors.InvalidInputError(
            f"{workers} workers have no command to run",
            next_step='Give `command`, as in ["headgate", "jobqueue", "evaluate"].',
        )
    if command and not workers:
        raise errors.InvalidInputError(
            f"the command {command[0]!r} has no workers to run it", next_step="Set `workers` to 1 or more."
        )
