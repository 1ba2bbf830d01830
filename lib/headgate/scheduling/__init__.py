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
    BoundedBorrow,
    DenyReason,
    Refused,
    StrictFair,
    TaskPolicy,
)
from headgate.scheduling.pressure import PressureRules
from headgate.scheduling.retries import (
    RetryLaterError,
    RetryRules,
    TaskFailedError,
    is_defect,
)
from headgate.scheduling.row_groups import RowGroup
from headgate.scheduling.stages import Dropped, Progress, StageGraph, StageState
from headgate.scheduling.trace import Trace

__all__ = [
    "AdaptiveFrontier",
    "Backpressure",
    "BlockReason",
    "BoundedBorrow",
    "DenyReason",
    "Dispatch",
    "DispatchLoop",
    "Dispatcher",
    "Dropped",
    "Explanation",
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
    "is_defect",
]
