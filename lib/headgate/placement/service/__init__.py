"""The ledger at work: journal, timers, and the hands that act for it."""

__all__ = [
    "carrying",
    "feeds",
    "hands",
    "journal",
    "looking",
    "reconciling",
    "service",
    "steps",
    "tally",
    "values",
]
