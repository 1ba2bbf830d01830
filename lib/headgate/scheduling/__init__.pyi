from .backpressure import Backpressure as Backpressure
from .dispatcher import Dispatch as Dispatch, Dispatcher as Dispatcher, Held as Held
from .explanation import Explanation as Explanation
from .fair_queue import FairQueue as FairQueue, Selection as Selection, StaleSelection as StaleSelection
from .frontier import (
    AdaptiveFrontier as AdaptiveFrontier,
    BlockReason as BlockReason,
    FrontierRules as FrontierRules,
    FrontierView as FrontierView,
)
from .loop import EVERYTHING_DONE as EVERYTHING_DONE, DispatchLoop as DispatchLoop, LoopResult as LoopResult
from .policies import (
    BoundedBorrow as BoundedBorrow,
    DenyReason as DenyReason,
    StrictFair as StrictFair,
    TaskPolicy as TaskPolicy,
)
from .pressure import PressureRules as PressureRules
from .retries import RetryLaterError as RetryLaterError, RetryRules as RetryRules, TaskFailedError as TaskFailedError
from .row_groups import RowGroup as RowGroup
from .stages import StageGraph as StageGraph, StageState as StageState
from .trace import Trace as Trace
