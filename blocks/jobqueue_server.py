"""The `JobQueueServer` block: a job queue's server, and the token and timeouts for requests to it."""

from __future__ import annotations

from typing import Any, ClassVar

from prefect.blocks.core import Block
from pydantic import Field, SecretStr, field_validator

from headgate.jobqueue.wire import DEFAULT_LEASE_S, LEAST_LEASE_S, LONGEST_LEASE_S
from headgate.jobqueue.worker import JobQueueClient, QueueAddress, RetryPolicy
from headgate.run import JobSampleRules


class JobQueueServer(Block):
    """The server of a job queue, its token, and its timeouts. See docs/reference/prefect.md#jobqueueserver.

    Examples:
        ```python
        from blocks import JobQueueServer

        async with JobQueueServer.load("BLOCK_NAME").client() as queue:
            print(await queue.statistics())
        ```
    """

    _block_type_name: ClassVar[str] = "Job Queue Server"
    _block_type_slug: ClassVar[str] = "headgate-job-queue-server"
    _logo_url: ClassVar[Any] = None

    url: str = Field(
        default="http://127.0.0.1:8000",
        title="URL",
        description="Address of the server, without the token.",
        pattern=r"^https?://[^\s@]+$",
    )
    token: SecretStr = Field(
        default=SecretStr(""),
        title="Token",
        description="Sent as a bearer token; its scopes decide what a flow may do. Empty: no token is sent.",
    )
    queue: str = Field(
        default="main",
        title="Name of the queue",
        description="Identifies samples, together with the job's id: two queues need two names.",
    )
    lease_s: float = Field(
        default=DEFAULT_LEASE_S,
        ge=LEAST_LEASE_S,
        le=LONGEST_LEASE_S,
        allow_inf_nan=False,
        title="Lease",
        description="Seconds after which a job of a dead worker is given to another worker.",
    )
    patience_s: float = Field(
        default=300.0,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
        title="Patience",
        description="Seconds for which a flow run retries while the server does not answer.",
    )

    @field_validator("queue")
    @classmethod
    def _usable(cls, queue: str) -> str:
        JobSampleRules(queue=queue)
        return queue

    def address(self) -> QueueAddress:
        """Return where the server is, with its token.

        Raises:
            InvalidInputError: if the URL is not valid.
        """
        return QueueAddress.of(self.url, self.token.get_secret_value())

    def client(self) -> JobQueueClient:
        """Return a client of the server: an async context manager."""
        return JobQueueClient(self.address(), retry=RetryPolicy(patience_s=self.patience_s))
