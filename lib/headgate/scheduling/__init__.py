"""Scheduling: the fair ready queue, backpressure, task leases and the dispatcher that joins them."""

from headgate.scheduling.backpressure import Backpressure
from headgate.scheduling.dispatcher import Dispatch, Dispatcher, Explanation, Held
from headgate.scheduling.fair_queue import FairReadyQueue, Selection, StaleSelection

__all__ = [
    "Backpressure",
    "Dispatch",
    "Dispatcher",
    "Explanation",
    "FairReadyQueue",
    "Held",
    "Selection",
    "StaleSelection",
]
