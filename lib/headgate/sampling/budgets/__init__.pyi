from .daily_budget import (
    BUCKET_S as BUCKET_S,
    DailyBudget as DailyBudget,
    DailyLimits as DailyLimits,
    Exhausted as Exhausted,
    SpendingWindow as SpendingWindow,
)
from .sample_budget import (
    COMPLETION_FLOOR as COMPLETION_FLOOR,
    Allowed as Allowed,
    Habits as Habits,
    SampleBudget as SampleBudget,
    SampleLimits as SampleLimits,
    Spent as Spent,
    prompt_chars as prompt_chars,
    reply_chars as reply_chars,
)
