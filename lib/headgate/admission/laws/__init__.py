"""The limit laws: how many requests may be in flight at once, as outcomes teach it."""

from headgate.admission.laws.adaptive import AdaptiveLaw
from headgate.admission.laws.aimd import AimdLaw
from headgate.admission.laws.factory import law_factory
from headgate.admission.laws.law import Admitted, LimitChange, LimitLaw
from headgate.admission.laws.settings import AdaptiveSettings, AimdSettings, QueueGuardSettings

__all__ = [
    "AdaptiveLaw",
    "AdaptiveSettings",
    "Admitted",
    "AimdLaw",
    "AimdSettings",
    "LimitChange",
    "LimitLaw",
    "QueueGuardSettings",
    "law_factory",
]
