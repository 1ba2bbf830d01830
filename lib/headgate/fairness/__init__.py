"""Weighted fairness between groups that compete for the same thing: one queue for tasks and for requests."""

from headgate.fairness.fair_queue import FairQueue, Queueable, Selection, StaleSelection

__all__ = ["FairQueue", "Queueable", "Selection", "StaleSelection"]
