"""The levels of the log of what happens once per task or request, or whenever a limit moves."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from headgate.core import events

_OFTEN: Final[tuple[type[events.Event], ...]] = (
    events.AdmissionBlocked,
    events.AdmissionDenied,
    events.CapacityReported,
    events.DependencyReady,
    events.GroupCapped,
    events.HealthReported,
    events.NonRetryableDropped,
    events.ProviderSlotsChanged,
    events.QueueDrained,
    events.QueueEmpty,
    events.ReadyEnqueued,
    events.RequestCapChanged,
    events.RequestCeilingRecovered,
    events.RequestDenied,
    events.RequestFullyRecovered,
    events.RequestLeaseAcquired,
    events.RequestLeaseReleased,
    events.RequestLimitDecreased,
    events.RequestLimitIncreased,
    events.RequestPressureSkipped,
    events.RequestQueueDrained,
    events.RequestQueueFormed,
    events.RequestRateLimited,
    events.RequestResourceRegistered,
    events.RequestStarted,
    events.RequestWaitCancelled,
    events.RequestWaitCompleted,
    events.RequestWaitStarted,
    events.RequestWaitTimedOut,
    events.RetryDeferred,
    events.RetryDenied,
    events.RetryRedispatched,
    events.RowGroupAdmissionBlocked,
    events.RowGroupAdmissionTargetChanged,
    events.RowGroupAdmitted,
    events.RowGroupCheckpointed,
    events.SchedulerHealthSnapshot,
    events.SelectionStale,
    events.SlotsLeased,
    events.SlotsReturned,
    events.TaskCancelled,
    events.TaskCompleted,
    events.TaskDeferred,
    events.TaskLeaseAcquired,
    events.TaskLeaseReleased,
    events.TaskOpened,
    events.TaskParked,
    events.TaskSelected,
    events.TaskUnparked,
    events.WorkerSpawned,
)
_NOTEWORTHY: Final[tuple[type[events.Event], ...]] = (
    events.BreakerOpened,
    events.EarlyStopped,
    events.ReleaseDiagnostic,
    events.RequestCapsDiffer,
    events.RequestReleaseRefused,
    events.SlotLimitDiffers,
    events.SlotLimitMissing,
    events.SlotServiceAway,
    events.SlotsDisagree,
    events.SlotsLost,
    events.WorkerSpawnFailed,
)
SCHEDULING_LEVELS: Final[Mapping[type[events.Event], int]] = {
    **dict.fromkeys(_OFTEN, logging.DEBUG),
    **dict.fromkeys(_NOTEWORTHY, logging.WARNING),
}
"""Event type -> level of the log; what is not here is information."""
