"""What is said to a policy server and how its answers are read, for both clients; does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from headgate.jobqueue.policy.errors import MalformedMessageError, PolicyFailedError
from headgate.jobqueue.policy.wire import decode, encode

Action = np.ndarray[Any, Any]
"""What a policy answers: numbers, in the shape that the simulator takes."""

_SHOWN_CHARS: Final = 2_000


class Dialogue:
    """One connection to a policy server, from its metadata on.

    BEHAVIOR-1K's servers do not answer a reset. Some others do; such an answer carries no `action`, and is passed over,
    since every action after it would else belong to the observation before.
    """

    def __init__(self, opening: str | bytes) -> None:
        """Read the first frame of a connection.

        Raises:
            PolicyFailedError: if it is text.
            MalformedMessageError: if it cannot be read.
        """
        self.metadata: Mapping[str, Any] = decode(_binary(opening))
        self._resets_unanswered = 0

    def reset(self) -> bytes:
        """Return the message that begins an episode; nothing answers it."""
        self._resets_unanswered += 1
        return encode({"reset": True})

    def observe(self, observation: Mapping[str, Any]) -> bytes:
        """Return the message that asks for an action.

        Raises:
            MalformedMessageError: if a value of the observation cannot travel, or it has a key `reset`.
        """
        if "reset" in observation:
            raise MalformedMessageError(
                "an observation must not have the key 'reset', by which servers know the start of an episode",
                next_step="Give that value another name.",
            )
        return encode(observation)

    def read(self, frame: str | bytes) -> Action | None:
        """Return the action of a frame, None for the answer to a reset: the action is in the next one.

        Raises:
            PolicyFailedError: if it is text (a traceback), or holds no action.
            MalformedMessageError: if it cannot be read.
        """
        answer = decode(_binary(frame))
        if "action" not in answer and self._resets_unanswered:
            self._resets_unanswered -= 1
            return None
        self._resets_unanswered = 0
        return _action(answer)


def _binary(frame: str | bytes) -> bytes:
    if isinstance(frame, bytes):
        return frame
    last_line = frame.strip().rpartition("\n")[2]
    raise PolicyFailedError(f"the policy server reports an error: {last_line:.300}", report=frame[-_SHOWN_CHARS:])


def _action(answer: Mapping[str, Any]) -> Action:
    if "action" not in answer:
        raise PolicyFailedError(f"the answer has no key 'action' (it has {', '.join(map(repr, answer))!s:.200})")
    try:
        action = np.asarray(answer["action"])
    except ValueError as error:
        raise PolicyFailedError(f"the action is not an array: {error}") from error
    if action.dtype.kind not in "biuf":
        raise PolicyFailedError(f"an action must be numbers (got dtype {action.dtype})")
    return action
