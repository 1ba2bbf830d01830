"""Scheduling: the fair ready queue, backpressure, task leases and the dispatcher that joins them."""

from headgate.scheduling.backpressure import Backpressure
from headgate.scheduling.dispatcher import Dispatch, Dispatcher, Explanation, Held
from headgate.scheduling.ready_queue import FairReadyQueue

__all__ = [
    "Backpressure",
    "Dispatch",
    "Dispatcher",
    "Explanation",
    "FairReadyQueue",
    "Held",
]
