"""Two answers to one task before a judge: what it is asked, and what its reply says."""

from headgate.environments.pairwise.question import (
    PAIR_REMINDER,
    AskedPair,
    pair_question,
    points_of_task,
    read_pair,
    read_preference,
)

__all__ = ["PAIR_REMINDER", "AskedPair", "pair_question", "points_of_task", "read_pair", "read_preference"]
