"""Incidents that are drawn from a seed: parts that need each other, a chain of failures, and one that is unrelated."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

PARTS: Final = (
    "backup server", "billing service", "cache cluster", "certificate store", "chat gateway", "chart renderer",
    "device registry", "document index", "event bus", "export job", "feature flags", "file share", "fraud filter",
    "image resizer", "invoice printer", "general ledger", "license server", "login service", "log archive",
    "mail relay", "map server", "message broker", "metrics store", "name server", "order database", "payment gateway",
    "price feed", "report builder", "route planner", "search index", "session store", "sign-up page",
    "stock ledger", "tax calculator", "ticket desk", "time server", "token issuer", "translation service",
    "video encoder", "warehouse terminal",
)  # fmt: skip
"""No name is part of another one."""

FAULTS: Final = (
    "ran out of disk space", "lost its network link", "rejected every password", "answered ten times slower",
    "restarted every minute", "refused new connections", "served outdated records", "ran out of memory",
    "presented an expired certificate", "dropped half of its messages", "stopped at a locked file",
    "could not resolve any name", "wrote empty files", "lost its configuration", "returned only errors",
    "counted every entry twice",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """A part and what happened to it, at a minute of the day."""

    part: str
    fault: str
    minute: int

    def __str__(self) -> str:
        return f"{self.minute // 60:02d}:{self.minute % 60:02d} The {self.part} {self.fault}."


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident.

    Attributes:
        chain: the root cause first, the complaint last; each part needs the one before it.
        unrelated: an event that has nothing to do with the complaint.
        needs: (part, what it needs), the chain's pairs and others.
        notes: all of it in lines, out of order.
    """

    chain: tuple[Event, ...]
    unrelated: Event
    needs: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def incident(seed: int) -> Incident:
    """Return the incident of a seed; the same on every machine."""
    rng = random.Random(f"incident {seed}")
    length = rng.randint(3, 5)
    parts = rng.sample(PARTS, length + 4)
    faults = rng.sample(FAULTS, length + 1)
    chained, (unrelated, *bystanders) = parts[:length], parts[length:]
    minutes = sorted(rng.sample(range(8 * 60, 18 * 60), length + 1))
    # Anywhere but last, so that neither the first event nor a part's mere name tells the root cause.
    extra = minutes.pop(rng.randrange(length))
    chain = tuple(Event(p, f, m) for p, f, m in zip(chained, faults[:length], minutes, strict=True))
    other = Event(unrelated, faults[length], extra)
    needs = [(chained[n + 1], chained[n]) for n in range(length - 1)]
    needs += [(bystanders[0], unrelated), (bystanders[1], bystanders[2]), (bystanders[2], chained[-1])]
    notes = [f"The {part} needs the {needed}." for part, needed in needs] + [str(event) for event in (*chain, other)]
    rng.shuffle(notes)
    return Incident(chain, other, tuple(needs), tuple(notes))
