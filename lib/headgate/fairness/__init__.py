"""Weighted fairness between groups that compete for the same thing: one queue for tasks and for requests."""

from headgate.fairness.entries import Group, Lane, Queueable, Selection, StaleSelection
from headgate.fairness.fair_queue import FairQueue

__all__ = ["FairQueue", "Group", "Lane", "Queueable", "Selection", "StaleSelection"]
