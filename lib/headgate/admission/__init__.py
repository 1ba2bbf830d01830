"""Request admission: adaptive limits, request leases, and the executor around one model call."""

from headgate.admission.breaker import BreakerRule, BreakerState
from headgate.admission.controller import AdmissionController
from headgate.admission.gate import AdmittedRequest, RequestAdmission, denied_error, outcome_of
from headgate.admission.items import (
    NO_CORRELATION,
    AccountSnapshot,
    Correlation,
    Denied,
    DenyReason,
    KeySnapshot,
    Pressure,
    PressureChanged,
    PressureReason,
    RequestItem,
)
from headgate.admission.keys import Domain, ProviderModel, RequestKey, provider_of, request_key
from headgate.admission.laws import Admitted, LimitChange, LimitLaw
from headgate.admission.leases import RequestLease, Ticket
from headgate.admission.outcomes import SUCCESS, OutcomeKind, RequestOutcome

__all__ = [
    "NO_CORRELATION",
    "SUCCESS",
    "AccountSnapshot",
    "AdmissionController",
    "Admitted",
    "AdmittedRequest",
    "BreakerRule",
    "BreakerState",
    "Correlation",
    "Denied",
    "DenyReason",
    "Domain",
    "KeySnapshot",
    "LimitChange",
    "LimitLaw",
    "OutcomeKind",
    "Pressure",
    "PressureChanged",
    "PressureReason",
    "ProviderModel",
    "RequestAdmission",
    "RequestItem",
    "RequestKey",
    "RequestLease",
    "RequestOutcome",
    "Ticket",
    "denied_error",
    "outcome_of",
    "provider_of",
    "request_key",
]
