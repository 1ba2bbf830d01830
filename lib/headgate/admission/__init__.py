"""Request admission: adaptive limits, request leases, and the executor around one model call."""

from headgate.admission.keys import Domain, ProviderModel, RequestKey, provider_of, request_key
from headgate.admission.laws import Admitted, LimitChange, LimitLaw
from headgate.admission.outcomes import SUCCESS, OutcomeKind, RequestOutcome

__all__ = [
    "SUCCESS",
    "Admitted",
    "Domain",
    "LimitChange",
    "LimitLaw",
    "OutcomeKind",
    "ProviderModel",
    "RequestKey",
    "RequestOutcome",
    "provider_of",
    "request_key",
]
