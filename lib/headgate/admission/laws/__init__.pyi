from .adaptive import AdaptiveLaw as AdaptiveLaw
from .aimd import AimdLaw as AimdLaw
from .factory import law_factory as law_factory
from .law import Admitted as Admitted, LimitChange as LimitChange, LimitLaw as LimitLaw
from .settings import (
    AdaptiveSettings as AdaptiveSettings,
    AimdSettings as AimdSettings,
    QueueGuardSettings as QueueGuardSettings,
)
