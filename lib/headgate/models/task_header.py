"""The header that tells a baseline which task it is asked about. Sent to no model that does not ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TASK_HEADER: Final = "X-Headgate-Task"
TASK_HEADER_OPTION: Final = "headgate_task_header"
"""Option of a model whose endpoint is one of ours: the header is sent to it."""


@dataclass(frozen=True, slots=True)
class TaskReference:
    """Which task a request belongs to."""

    environment: str
    index: int
    seed: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.environment}/{self.index}/{self.seed}/{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> TaskReference:
        """Return the reference in `text`; an environment's own name may hold slashes.

        Raises:
            ValueError: unless it is `environment/index/seed/sequence` with whole numbers >= 0.
        """
        environment, *numbers = text.rsplit("/", 3)
        if not environment or len(numbers) != 3 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise ValueError(f"{TASK_HEADER} must be environment/index/seed/sequence (got {text[:100]!r})")
        index, seed, sequence = map(int, numbers)
        return cls(environment, index, seed, sequence)
