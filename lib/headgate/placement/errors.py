"""Errors of placement, each with a code, a sentence and the next step."""

from __future__ import annotations

from headgate.core.errors import HeadgateError, InvalidInputError


class InvalidPlacementError(InvalidInputError):
    """A pool, a request or a preemption rule is not valid."""

    code = "invalid_placement"
    next_step = "Correct the value and submit it again; docs/how-to/placement.md shows how they are written."


class CannotFitError(InvalidPlacementError):
    """A request is larger than the cluster or its pool can ever give, so it would wait for ever."""

    code = "cannot_fit"
    next_step = "Ask for less, raise the pool's quota, or add a node: `headgate placement status` shows what each has."


class UnknownPoolError(InvalidPlacementError):
    """A request names a pool that is not open."""

    code = "unknown_pool"
    http_status = 404
    next_step = "`headgate placement status` lists the pools."


class PlacementLostError(HeadgateError):
    """Work was stopped before it ended: preempted, cancelled, or its node died."""

    code = "placement_lost"
    http_status = 409
    next_step = "Preempted work is requeued automatically; `headgate placement status` shows it."


class WorkFailedError(HeadgateError):
    """The submitted work raised an error or its process died; the traceback is in the message."""

    code = "work_failed"
    next_step = "Read the traceback; the group is free again and other work continues."


class ClusterUnreachableError(HeadgateError):
    """No Ray cluster answers at the address that was given."""

    code = "cluster_unreachable"
    http_status = 503
    exit_code = 3
    next_step = "Check RAY_ADDRESS and that `ray status` works there, or unset it to start a local cluster."


class ClusterMismatchError(ClusterUnreachableError):
    """The cluster runs another version of Ray or Python than this process."""

    code = "cluster_mismatch"
    next_step = "Install the cluster's version of Ray here, or start the cluster with this one."


class LedgerUnreachableError(HeadgateError):
    """The placement ledger does not answer."""

    code = "ledger_unreachable"
    http_status = 503
    exit_code = 3
    next_step = "Start it with `headgate placement up`; it resumes from its journal."
