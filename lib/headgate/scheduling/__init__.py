"""Scheduling: fair ready queue, task admission, stages, the adaptive frontier, and the loop that joins them."""

from headgate.scheduling.backpressure import Backpressure
from headgate.scheduling.dispatcher import Dispatch, Dispatcher, Held
from headgate.scheduling.explanation import Explanation
from headgate.scheduling.fair_entries import Selection, StaleSelection
from headgate.scheduling.fair_queue import FairQueue
from headgate.scheduling.frontier import AdaptiveFrontier, BlockReason, FrontierRules, FrontierStep, FrontierView
from headgate.scheduling.holdings import Holdings
from headgate.scheduling.loop import DispatchLoop, LoopResult
from headgate.scheduling.policies import (
    Allowed,
    BoundedBorrow,
    Claim,
    DenyReason,
    Refused,
    StrictFair,
    TaskPolicy,
    debt,
    evaluate,
)
from headgate.scheduling.pressure import PressureRules
from headgate.scheduling.retries import RetryRules
from headgate.scheduling.row_groups import RowGroup
from headgate.scheduling.stages import Dropped, Progress, StageGraph, StageState
from headgate.scheduling.trace import Trace
from headgate.scheduling.verdicts import (
    Defect,
    Failure,
    Retry,
    RetryLaterError,
    TaskFailedError,
    Verdict,
    verdict_of,
)

__all__ = [
    "AdaptiveFrontier",
    "Allowed",
    "Backpressure",
    "BlockReason",
    "BoundedBorrow",
    "Claim",
    "Defect",
    "DenyReason",
    "Dispatch",
    "DispatchLoop",
    "Dispatcher",
    "Dropped",
    "Explanation",
    "Failure",
    "FairQueue",
    "FrontierRules",
    "FrontierStep",
    "FrontierView",
    "Held",
    "Holdings",
    "LoopResult",
    "PressureRules",
    "Progress",
    "Refused",
    "Retry",
    "RetryLaterError",
    "RetryRules",
    "RowGroup",
    "Selection",
    "StageGraph",
    "StageState",
    "StaleSelection",
    "StrictFair",
    "TaskFailedError",
    "TaskPolicy",
    "Trace",
    "Verdict",
    "debt",
    "evaluate",
    "verdict_of",
]
