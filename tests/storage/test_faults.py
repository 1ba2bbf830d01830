"""S3 that answers 5xx, stalls, loses answers, or gets half of an upload: over real HTTP, through a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headgate.core import Sample, errors
from headgate.storage import SampleStore
from headgate.storage.objects import ObjectStore
from tests.storage.faults import Proxy
from tests.storage.samples import many, sample

Open = Callable[..., ObjectStore]


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the client try again soon: its own waits grow to seconds, and are at random."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.02)


def _batch(first: int = 0) -> list[Sample]:
    return [sample(first + n, environment=f"e:{n % 3}") for n in range(30)]


async def _rows(store: SampleStore) -> int:
    found = await store.scan()
    assert (found.problems, found.duplicates) == ((), 0)
    return found.frame.height


async def test_5xx_answers_are_tried_again_until_one_is_good(s3_objects: Open, proxy: Proxy) -> None:
    store = SampleStore(s3_objects(proxy))
    proxy.fail("503", 2, method="PUT", path="/samples/")
    proxy.fail("503", 1, method="PUT", path="/manifests/")
    assert (await store.put_batch("one", _batch())).rows == 30
    assert proxy.fault_of("PUT", "/samples/") is None
    assert await _rows(store) == 30


async def test_a_store_that_answers_5xx_only_is_a_store_error_and_the_batch_can_be_put_later(
    s3_objects: Open, proxy: Proxy
) -> None:
    store = SampleStore(s3_objects(proxy, call_timeout_s=2.0))
    proxy.fail("503", 1_000, method="PUT", path="/manifests/")
    with pytest.raises(errors.StoreError, match=r"manifests/one\.json"):
        await store.put_batch("one", _batch())
    assert await _rows(store) == 0
    proxy.heal()
    assert (await store.put_batch("one", _batch())).rows == 30
    assert await _rows(store) == 30


@pytest.mark.parametrize("path", ["/samples/", "/manifests/"])
async def test_a_stalling_store_is_a_store_error_within_the_deadline(s3_objects: Open, proxy: Proxy, path: str) -> None:
    store = SampleStore(s3_objects(proxy, call_timeout_s=2.0))
    proxy.fail("stall", 1_000, method="PUT", path=path)
    with pytest.raises(errors.StoreError, match="did not answer within 2"):
        await asyncio.wait_for(store.put_batch("one", _batch()), 60)  # by itself the client would go on for minutes
    proxy.heal()
    assert (await store.put_batch("one", _batch())).rows == 30
    assert await _rows(store) == 30


async def test_a_stalling_read_is_a_store_error_and_no_empty_result(s3_objects: Open, proxy: Proxy) -> None:
    await SampleStore(s3_objects()).put_batch("one", _batch())
    store = SampleStore(s3_objects(proxy, call_timeout_s=2.0))
    proxy.fail("stall", 1_000, method="GET", path="/samples/")
    with pytest.raises(errors.StoreError, match="did not answer within"):
        await asyncio.wait_for(store.scan(), 60)
    proxy.heal()
    assert await _rows(store) == 30


async def test_an_upload_that_is_cut_in_half_is_never_visible(s3_objects: Open, proxy: Proxy) -> None:
    store, reader = SampleStore(s3_objects(proxy, call_timeout_s=2.0)), SampleStore(s3_objects())
    proxy.fail("cut upload", 1_000, method="PUT", path="/samples/")
    with pytest.raises(errors.StoreError):
        await store.put_batch("one", _batch())
    assert await _rows(reader) == 0
    proxy.heal()
    proxy.fail("cut upload", 1_000, method="PUT", path="/manifests/")
    with pytest.raises(errors.StoreError):
        await store.put_batch("one", _batch())
    found = await reader.scan()
    assert found.frame.height == 0
    proxy.heal()
    await store.put_batch("two", _batch(100))
    assert (await SampleStore(s3_objects()).scan()).frame.height == 30


async def test_an_upload_that_is_cut_once_is_repeated(s3_objects: Open, proxy: Proxy) -> None:
    store = SampleStore(s3_objects(proxy))
    proxy.fail("cut upload", 1, method="PUT", path="/samples/")
    assert (await store.put_batch("one", _batch())).rows == 30
    assert await _rows(store) == 30


async def test_a_manifest_whose_confirmation_was_lost_counts_as_stored(s3_objects: Open, proxy: Proxy) -> None:
    """The first try wrote it, the second finds the key taken: that is success, not an error."""
    store = SampleStore(s3_objects(proxy))
    proxy.fail("lose answer", 1, method="PUT", path="/manifests/")
    assert (await store.put_batch("one", _batch())).rows == 30
    assert len([1 for method, path in proxy.seen if method == "PUT" and "/manifests/" in path]) == 2
    assert await _rows(store) == 30


async def test_an_answer_that_is_cut_off_is_asked_for_again(s3_objects: Open, proxy: Proxy) -> None:
    store = SampleStore(s3_objects(proxy))
    await store.put_batch("one", _batch())
    proxy.fail("cut answer", 2, method="GET", path="/samples/")
    assert await _rows(store) == 30


async def test_one_failing_upload_ends_the_others_and_the_batch(s3_objects: Open, proxy: Proxy) -> None:
    store = SampleStore(s3_objects(proxy, call_timeout_s=2.0))
    proxy.fail("stall", 1, method="PUT", path="environment%253A0")
    proxy.fail("stall", 1_000, method="PUT", path="/samples/")
    with pytest.raises(errors.StoreError):
        await store.put_batch("one", _batch())
    assert not any("/manifests/" in path for method, path in proxy.seen if method == "PUT")


async def test_refused_credentials_say_that_the_store_cannot_be_used(s3_objects: Open, proxy: Proxy) -> None:
    store = SampleStore(s3_objects(proxy))
    await store.put_batch("one", many(1))
    proxy.fail("403", 1, method="PUT")
    with pytest.raises(errors.StoreNotWritableError, match="Access Denied"):
        await store.put_batch("two", many(1, first=1))
