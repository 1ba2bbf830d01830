"""Creates the limit law that a campaign's settings name."""

from __future__ import annotations

from collections.abc import Callable

from headgate.admission.laws.adaptive import AdaptiveLaw
from headgate.admission.laws.aimd import AimdLaw
from headgate.admission.laws.law import LimitLaw
from headgate.admission.laws.settings import LONGEST_COOLDOWN_S, AdaptiveSettings, AimdSettings
from headgate.config import AdmissionSettings


def law_factory(settings: AdmissionSettings) -> Callable[[int], LimitLaw]:
    """Return a function that makes a request key's limit law from its cap.

    Raises:
        InvalidSettingError: if a setting breaks a rule of the law.
    """
    if settings.limit_law == "aimd":
        aimd = AimdSettings(
            cooldown_s=settings.cooldown_seconds,
            decrease_factor=settings.multiplicative_decrease_factor,
            increase_step=settings.additive_increase_step,
            successes_until_increase=settings.successes_until_increase,
            longest_cooldown_s=max(LONGEST_COOLDOWN_S, settings.cooldown_seconds),
            startup_ramp_s=settings.startup_ramp_seconds,
        )
        return lambda max_limit: AimdLaw(max_limit, aimd)
    adaptive = AdaptiveSettings(startup_ramp_s=settings.startup_ramp_seconds)
    return lambda max_limit: AdaptiveLaw(max_limit, adaptive)
