"""What processes of environments may take, and where their environments come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

KILLED_ABOVE: Final = 1.5
"""Times `memory_mib` at which a process is ended with its episodes: below it they may finish."""


@dataclass(frozen=True, slots=True)
class ApartLimits:
    """What the processes of one package may take; the settings `environment_…` say the same to a campaign.

    Attributes:
        processes: at most, those being replaced not counted.
        call_s: deadline of one call, counted from when the process began it.
        memory_mib: resident memory of a process and of those that it started.
    """

    processes: int = 2
    call_s: float = 60.0
    memory_mib: int = 2048


@dataclass(frozen=True, slots=True)
class Source:
    """Where a child process takes its environments from.

    Attributes:
        kind: whether `value` makes an environment or a collection.
        name: of the environment, or prefix of the collection.
        value: of the entry point: `module:attribute`.
    """

    kind: Literal["environment", "collection"]
    name: str
    value: str

    @property
    def label(self) -> str:
        """What errors call its process."""
        return f"environment {self.name!r}" if self.kind == "environment" else f"collection {self.name!r}"
