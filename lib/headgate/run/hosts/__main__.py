"""`python -m headgate.run.hosts`: the process that talks to Ray on behalf of a run.

Ray kills a driver whose cluster is gone for a minute; a run must survive that. This process reads JSON lines from
standard input, a `Broker`'s order, then `{"ask": NAME}`, `{"drop": NAME}` or `{"end": true}`, and ends with its input.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import Any, Final

from headgate.core.errors import HeadgateError

_END_S: Final = 10.0
"""Time to give places back once the run is gone; after that the ledger reclaims them anyway."""


def main() -> int:
    """Serve one run."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps Ray's own output out of our lines
    lock = threading.Lock()  # protects `lines`

    def tell(**told: Any) -> None:
        with lock:
            lines.write(json.dumps(told) + "\n")

    order = json.loads(sys.stdin.readline())
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(commands,), daemon=True).start()
    from headgate.run.hosts.broker import Broker  # noqa: PLC0415 - Ray takes a second to import

    try:
        broker = Broker(order, tell)
    except HeadgateError as error:
        tell(failed=error.message, next_step=error.next_step)
        return error.exit_code
    broker.lost.add_done_callback(lambda lost: commands.put({"failed": lost.result()}))
    try:
        while "end" not in (command := commands.get()):
            if "failed" in command:
                tell(**command)
                break
            if "ask" in command:
                broker.ask(command["ask"])
            else:
                broker.drop(command["drop"])
    finally:
        broker.close()
    return 0


def _read(commands: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        commands.put(json.loads(line))
    commands.put({"end": True})
    timer = threading.Timer(_END_S, os._exit, (1,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main())
