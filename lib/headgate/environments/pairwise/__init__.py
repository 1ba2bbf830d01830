"""Two answers to one task before a judge: what it is asked, and what its reply says."""

from headgate.environments.pairwise.own_points import points_of_task
from headgate.environments.pairwise.question import PAIR_REMINDER, AskedPair, pair_question, read_pair
from headgate.environments.pairwise.reply import read_preference

__all__ = ["PAIR_REMINDER", "AskedPair", "pair_question", "points_of_task", "read_pair", "read_preference"]
