"""What went wrong on a connection, in the words of both clients."""

from __future__ import annotations

from typing import Final

from websockets.exceptions import ConnectionClosed, InvalidStatus

from headgate.jobqueue.policy.errors import PolicyError, PolicyLostError, PolicyRefusedError, PolicyUnreachableError

BUSY_CODE: Final = 1013
"""Close code: another episode runs (RFC 6455's registry: try again later)."""

SUPERSEDED_CODE: Final = 4409
"""Close code of our own: a newer reservation has the server."""

_REFUSALS: Final = (409, 503)


def not_opened(url: str, error: BaseException) -> PolicyError:
    """Return why a connection could not be opened."""
    if isinstance(error, InvalidStatus) and error.response.status_code in _REFUSALS:
        said = error.response.body.decode(errors="replace").strip() if error.response.body else "it gives no reason"
        return PolicyRefusedError(f"the policy server at {url} refuses: {said:.300}")
    if (
        isinstance(error, ConnectionClosed)
        and error.rcvd is not None
        and error.rcvd.code in (BUSY_CODE, SUPERSEDED_CODE)
    ):
        return PolicyRefusedError(f"the policy server at {url} refuses: {error.rcvd.reason or 'it is busy'}")
    if isinstance(error, TimeoutError):
        return PolicyUnreachableError(f"the policy server at {url} does not answer in time")
    return PolicyUnreachableError(f"no policy server answers at {url}: {_sentence(error)}")


def lost(url: str, error: BaseException) -> PolicyError:
    """Return why a connection ended within an episode."""
    if isinstance(error, ConnectionClosed) and error.rcvd is not None and error.rcvd.code == SUPERSEDED_CODE:
        return PolicyRefusedError(f"the policy server at {url} was given to another: {error.rcvd.reason}")
    return PolicyLostError(f"the connection to the policy server at {url} ended within the episode: {_sentence(error)}")


def not_open(url: str) -> PolicyError:
    """Return the error of a call on a connection that is not open."""
    return PolicyLostError(
        f"there is no open connection to the policy server at {url}",
        next_step="Call connect(); after a failure the episode has to begin anew.",
    )


def _sentence(error: BaseException) -> str:
    if isinstance(error, AssertionError):
        return "what is there is no websocket"
    return (str(error) or type(error).__name__).strip().rstrip(".")
