from . import bank as bank, laws as laws
from .classify import SUCCESS as SUCCESS, OutcomeKind as OutcomeKind, RequestOutcome as RequestOutcome
from .controller import AdmissionController as AdmissionController
from .executor import CallWatch as CallWatch, RequestExecutor as RequestExecutor, RetryBudget as RetryBudget
from .gate import RequestAdmission as RequestAdmission
from .items import (
    Correlation as Correlation,
    Denied as Denied,
    Domain as Domain,
    Pressure as Pressure,
    PressureReason as PressureReason,
    ProviderModel as ProviderModel,
    RequestItem as RequestItem,
    RequestKey as RequestKey,
    RequestLease as RequestLease,
    Ticket as Ticket,
    request_key as request_key,
)
from .limit_rules import (
    MOST_SLOTS as MOST_SLOTS,
    NAME_PREFIX as NAME_PREFIX,
    Backlog as Backlog,
    LimitRule as LimitRule,
    SlotSource as SlotSource,
    limit_rule as limit_rule,
    rule_for as rule_for,
)
