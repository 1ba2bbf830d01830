"""The clients that block: from several threads, without a context, interrupted, and in a forked process."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import httpx
import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection

from headgate.jobqueue.policy import PolicyClient, PolicyLostError, SyncPolicyClient
from headgate.jobqueue.worker import HeldJob, JobQueueClient, SyncHeldJob, SyncJobQueueClient
from tests.jobqueue.policy.peer import echo_sums, peer
from tests.jobqueue.worker.queue_site import QueueSite

PATIENCE_S: Final = 30.0


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def empty(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"resources": []})


@contextmanager
def interrupted_once(begun: threading.Event) -> Iterator[None]:
    """Send this thread a SIGINT once something has begun.

    One that comes while the thread is about to block is seen with the next signal, so others follow, which do nothing.
    """
    main = threading.main_thread().ident or 0
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs have none
    usr2_before = signal.signal(signal.SIGUSR2, lambda *_: None)
    interrupted = threading.Event()

    def interrupt() -> None:
        assert begun.wait(PATIENCE_S)
        signal.pthread_kill(main, signal.SIGINT)
        while not interrupted.wait(0.5):
            signal.pthread_kill(main, signal.SIGUSR2)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        interrupted.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGUSR2, usr2_before)


def test_threads_share_a_client(site: QueueSite) -> None:
    site.submit(*map(str, range(8)))
    with SyncJobQueueClient(site.url) as queue, ThreadPoolExecutor(8) as pool:
        assert [job.id for job in pool.map(queue.job, map(str, range(8)))] == [str(n) for n in range(8)]


def test_no_thread_is_left_of_a_client_that_was_closed_or_forgotten() -> None:
    closed = SyncJobQueueClient("http://queue", transport=httpx.MockTransport(empty))
    forgotten = SyncJobQueueClient("http://queue", transport=httpx.MockTransport(empty))
    assert threads("headgate-jobqueue") == []
    assert closed.resources() == forgotten.resources() == []
    running = threads("headgate-jobqueue")
    closed.close()
    closed.close()
    del forgotten
    gc.collect()
    for thread in running:
        thread.join(PATIENCE_S)
    assert (len(running), threads("headgate-jobqueue")) == (2, [])


def test_a_client_that_was_closed_sends_nothing_more() -> None:
    with SyncJobQueueClient("http://queue", transport=httpx.MockTransport(empty)) as queue:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        queue.resources()
    queue.close()


def test_an_interrupt_ends_a_request_and_leaves_the_client_usable() -> None:
    asked, answered = threading.Event(), threading.Event()

    async def hang_once(request: httpx.Request) -> httpx.Response:
        if not asked.is_set():
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                answered.set()
        return empty(request)

    with SyncJobQueueClient("http://queue", transport=httpx.MockTransport(hang_once)) as queue:
        with interrupted_once(asked):
            queue.resources()
        assert answered.wait(PATIENCE_S)
        assert queue.resources() == []


def test_an_interrupt_ends_the_connection_to_a_policy_server() -> None:
    asked, over = threading.Event(), threading.Event()
    ports: list[int] = []
    served = threading.Event()

    async def hang(connection: ServerConnection) -> None:
        await connection.recv()
        asked.set()
        await connection.wait_closed()

    async def serve() -> None:
        async with peer(hang) as port:
            ports.append(port)
            served.set()
            await asyncio.to_thread(over.wait, PATIENCE_S)

    server = threading.Thread(target=lambda: asyncio.run(serve()))
    server.start()
    assert served.wait(PATIENCE_S)
    with SyncPolicyClient("127.0.0.1", ports[0]) as policy:
        with interrupted_once(asked):
            policy.act({"state": np.zeros(2)})
        with pytest.raises(PolicyLostError, match="no open connection"):
            policy.act({"state": np.zeros(2)})
    over.set()
    server.join(PATIENCE_S)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_has_connections_of_its_own_and_its_parent_keeps_those_that_it_had(site: QueueSite) -> None:
    site.submit("1")
    with SyncJobQueueClient(site.url) as queue:
        assert queue.job("1").id == "1"
        child = os.fork()
        if not child:
            status = 1
            try:
                status = 0 if queue.job("1").id == "1" else 2
                queue.close()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert queue.job("1").id == "1"


async def test_a_copy_of_a_policy_client_has_the_same_server_and_no_connection() -> None:
    async with peer(echo_sums) as port, PolicyClient("127.0.0.1", port) as policy:
        other = policy.__copy__()
        assert other.url == policy.url
        with pytest.raises(PolicyLostError):
            other.metadata  # noqa: B018 - reading it is the test
        assert policy.metadata


@pytest.mark.parametrize(
    ("blocking", "asynchronous"),
    [(SyncJobQueueClient, JobQueueClient), (SyncPolicyClient, PolicyClient), (SyncHeldJob, HeldJob)],
)
def test_methods_that_block_have_the_signatures_and_docstrings_of_those_that_await(
    blocking: type, asynchronous: type
) -> None:
    names = [name for name in vars(blocking) if inspect.iscoroutinefunction(getattr(asynchronous, name, None))]
    assert names
    for name in names:
        ours, theirs = getattr(blocking, name), getattr(asynchronous, name)
        assert not inspect.iscoroutinefunction(ours)
        assert inspect.signature(ours) == inspect.signature(theirs)
        assert inspect.getdoc(ours) == inspect.getdoc(theirs)
