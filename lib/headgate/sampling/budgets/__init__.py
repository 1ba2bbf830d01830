"""Budgets: what a sample may spend, and what a model may spend per day, decided before a request is sent."""

from headgate.sampling.budgets.daily_budget import BUCKET_S, DailyBudget, DailyLimits, Exhausted, SpendingWindow
from headgate.sampling.budgets.sample_budget import (
    COMPLETION_FLOOR,
    Allowed,
    Habits,
    SampleBudget,
    SampleLimits,
    Spent,
    prompt_chars,
    reply_chars,
)

__all__ = [
    "BUCKET_S",
    "COMPLETION_FLOOR",
    "Allowed",
    "DailyBudget",
    "DailyLimits",
    "Exhausted",
    "Habits",
    "SampleBudget",
    "SampleLimits",
    "SpendingWindow",
    "Spent",
    "prompt_chars",
    "reply_chars",
]
