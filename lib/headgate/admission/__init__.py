"""Request admission: adaptive limits, request leases, and the executor around one model call."""

from headgate.admission import bank, laws
from headgate.admission.classify import SUCCESS, OutcomeKind, RequestOutcome
from headgate.admission.controller import AdmissionController
from headgate.admission.executor import CallWatch, RequestExecutor, RetryBudget
from headgate.admission.gate import RequestAdmission
from headgate.admission.items import (
    Correlation,
    Denied,
    Domain,
    Pressure,
    PressureReason,
    ProviderModel,
    RequestItem,
    RequestKey,
    RequestLease,
    Ticket,
    request_key,
)
from headgate.admission.limit_rules import MOST_SLOTS, NAME_PREFIX, Backlog, LimitRule, SlotSource, limit_rule, rule_for

__all__ = [
    "MOST_SLOTS",
    "NAME_PREFIX",
    "SUCCESS",
    "AdmissionController",
    "Backlog",
    "CallWatch",
    "Correlation",
    "Denied",
    "Domain",
    "LimitRule",
    "OutcomeKind",
    "Pressure",
    "PressureReason",
    "ProviderModel",
    "RequestAdmission",
    "RequestExecutor",
    "RequestItem",
    "RequestKey",
    "RequestLease",
    "RequestOutcome",
    "RetryBudget",
    "SlotSource",
    "Ticket",
    "bank",
    "laws",
    "limit_rule",
    "request_key",
    "rule_for",
]
