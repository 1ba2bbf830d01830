"""Request admission: adaptive limits, request leases, and the executor around one model call."""

from headgate.admission.bank import SlotBank, fair_shares, split_slots
from headgate.admission.bank_terms import (
    BankCall,
    BankRules,
    LeaseBlock,
    LimitSeen,
    LookAtLimit,
    Outage,
    Peer,
    RenewBlock,
    ReturnBlock,
)
from headgate.admission.breaker import BreakerRule, BreakerState
from headgate.admission.budget import RetryBudget
from headgate.admission.classify import classify, error_kind
from headgate.admission.controller import AdmissionController
from headgate.admission.executor import IDLE_AFTER_S, CallWatch, RequestExecutor
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
from headgate.admission.laws import (
    AdaptiveLaw,
    AdaptiveSettings,
    Admitted,
    AimdLaw,
    AimdSettings,
    LimitChange,
    LimitLaw,
    QueueGuardSettings,
    law_factory,
)
from headgate.admission.leases import RequestLease, Ticket
from headgate.admission.limit_rules import MOST_SLOTS, NAME_PREFIX, Backlog, LimitRule, SlotSource, limit_rule, rule_for
from headgate.admission.outcomes import SUCCESS, OutcomeKind, RequestOutcome

__all__ = [
    "IDLE_AFTER_S",
    "MOST_SLOTS",
    "NAME_PREFIX",
    "NO_CORRELATION",
    "SUCCESS",
    "AccountSnapshot",
    "AdaptiveLaw",
    "AdaptiveSettings",
    "AdmissionController",
    "Admitted",
    "AdmittedRequest",
    "AimdLaw",
    "AimdSettings",
    "Backlog",
    "BankCall",
    "BankRules",
    "BreakerRule",
    "BreakerState",
    "CallWatch",
    "Correlation",
    "Denied",
    "DenyReason",
    "Domain",
    "KeySnapshot",
    "LeaseBlock",
    "LimitChange",
    "LimitLaw",
    "LimitRule",
    "LimitSeen",
    "LookAtLimit",
    "Outage",
    "OutcomeKind",
    "Peer",
    "Pressure",
    "PressureChanged",
    "PressureReason",
    "ProviderModel",
    "QueueGuardSettings",
    "RenewBlock",
    "RequestAdmission",
    "RequestExecutor",
    "RequestItem",
    "RequestKey",
    "RequestLease",
    "RequestOutcome",
    "RetryBudget",
    "ReturnBlock",
    "SlotBank",
    "SlotSource",
    "Ticket",
    "classify",
    "denied_error",
    "error_kind",
    "fair_shares",
    "law_factory",
    "limit_rule",
    "outcome_of",
    "provider_of",
    "request_key",
    "rule_for",
    "split_slots",
]
