"""The link of a driver to the ledger: calls that survive a restart of the ledger."""

from __future__ import annotations

import time
from typing import Any, Final

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from headgate.core.errors import HeadgateError
from headgate.placement.cluster.actor import LEDGER_NAME, ledger_actor
from headgate.placement.cluster.connecting import NAMESPACE
from headgate.placement.errors import LedgerUnreachableError
from headgate.placement.outcomes import LedgerSettings

PATIENCE_S: Final = 30.0
"""How long a call waits for a ledger that is being restarted, which takes 2 s."""

_PAUSE_S: Final = 0.1


class LedgerLink:
    """Calls of the ledger from any thread. Every call may be made twice: the ledger's are idempotent.

    Attributes:
        was_there: whether the ledger ran before this link was made, which starts one where there is none.
    """

    def __init__(self, journal: str, settings: LedgerSettings) -> None:
        self.was_there = _there_is_a_ledger()
        self._actor = ledger_actor(journal, settings)
        self._session = _session()

    @property
    def is_connected(self) -> bool:
        """Whether this process is still in the Ray session in which the link was made."""
        return ray.is_initialized() and _session() == self._session

    def ask(self, name: str, *args: Any, patience_s: float = PATIENCE_S) -> Any:
        """Return the ledger's answer.

        Raises:
            HeadgateError: the ledger refuses.
            LedgerUnreachableError: it does not answer in time.
        """
        until = time.monotonic() + patience_s
        while True:
            if not self.is_connected:  # Ray would start or join some cluster by itself
                raise LedgerUnreachableError(
                    f"This connection is closed and cannot ask for {name}", next_step="Connect again with connect()."
                )
            try:
                # Not by `ray.get`: a thread in it brings the process down when another one calls `ray.shutdown`.
                accepted, answer = self._actor.ask.remote(name, args).future().result(patience_s)
            except (ActorUnavailableError, RayActorError, TimeoutError) as error:
                if time.monotonic() >= until:
                    raise LedgerUnreachableError(
                        f"The placement ledger did not answer {name} within {patience_s:g} s: {type(error).__name__}"
                    ) from error
                if _is_gone(error, self._actor):
                    raise LedgerUnreachableError("The placement ledger of this cluster was ended") from error
                time.sleep(_PAUSE_S)
            except RayTaskError as error:
                raise LedgerUnreachableError(f"The placement ledger failed at {name}: {error}") from error
            else:
                if accepted:
                    return answer
                refusal: HeadgateError = answer
                raise refusal

    def kill(self) -> None:
        """End the ledger for good; what it held must be gone before."""
        ray.kill(self._actor, no_restart=True)


def _session() -> str:
    return str(ray.get_runtime_context().get_worker_id())


def _there_is_a_ledger() -> bool:
    try:
        ray.get_actor(LEDGER_NAME, namespace=NAMESPACE)
    except ValueError:
        return False
    return True


def _is_gone(error: Exception, actor: Any) -> bool:
    """Tell whether the ledger was ended for good, and is not being restarted."""
    if isinstance(error, TimeoutError | ActorUnavailableError):
        return False
    try:
        found = ray.get_actor(LEDGER_NAME, namespace=NAMESPACE)
    except ValueError:
        return True
    return bool(found._actor_id != actor._actor_id)  # noqa: SLF001 - another has its name since then
