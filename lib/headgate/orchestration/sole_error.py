"""The one error inside of task groups: what a flow run's state names."""

from __future__ import annotations


def sole_error(error: Exception) -> Exception:
    """Return the error inside of groups that hold one each: the flow run's state names it and nothing else."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    return error
