"""A process that owns a job queue until it is killed: `STORE_URL=… python -m tests.jobqueue.stores.owner`."""

from __future__ import annotations

import os
import sys

from headgate.jobqueue.errors import StoreInUseError
from headgate.jobqueue.stores import open_store
from tests.jobqueue.stores.values import a_job, submitted


def main() -> None:
    """Own the queue, submit a job and say so; then wait for the end."""
    store = open_store(os.environ["STORE_URL"])
    try:
        store.own("the child")
    except StoreInUseError:
        print("refused", flush=True)
        return
    store.commit(submitted(a_job(store.load().next_seq), first_entry=store.load().next_entry))
    print("owned", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
