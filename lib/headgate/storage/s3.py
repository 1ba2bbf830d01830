"""Objects of an S3 bucket (AWS, R2, any S3 API) through s3fs, every call with a deadline of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiohttp
import s3fs  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    IncompleteReadError,
    NoCredentialsError,
)
from fsspec.asyn import sync  # type: ignore[import-untyped]
from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from headgate.core import errors, redacted
from headgate.storage.objects import MissingObjectError, ObjectInfo

if TYPE_CHECKING:
    from headgate.storage.store import StoreLocation

_T = TypeVar("_T")

_PARALLEL: Final = 16
"""Concurrent requests per call; more gain nothing against one bucket and crowd out other users of the network."""

_READ_ATTEMPTS: Final = 3
"""Attempts to read a body that is cut off; botocore itself retries requests."""

_SLOWEST_BYTES_PER_S: Final = 1_000_000.0
"""A slower transfer counts as stalled: the deadline of a large object is extended by its size over this."""

_DENIED: Final = frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket", "403"})
_MISSING: Final = frozenset({"NoSuchKey", "404"})
_TAKEN: Final = frozenset({"PreconditionFailed", "412"})


class S3Objects:
    """An `ObjectStore` under a prefix of a bucket. One connection pool per instance, closed by `close`."""

    def __init__(self, bucket: str, prefix: str, location: StoreLocation) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.url = f"s3://{bucket}/{self._prefix}"
        self._timeout_s = location.call_timeout_s
        self._fs = s3fs.S3FileSystem(
            key=location.key.reveal() if location.key else None,
            secret=location.secret.reveal() if location.secret else None,
            endpoint_url=location.endpoint_url,
            client_kwargs={"region_name": location.region} if location.region else {},
            config_kwargs={
                "connect_timeout": min(10.0, self._timeout_s),
                "read_timeout": self._timeout_s,
                "max_pool_connections": 2 * _PARALLEL,
                "retries": {"max_attempts": 4, "mode": "standard"},
                # Headgate checks parts by its own SHA-256; not every S3 API accepts newer SDKs' trailing checksums.
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
            use_listings_cache=False,
            skip_instance_cache=True,
        )

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Write the objects, replacing what has their keys."""
        self._each([partial(self._call, "put_object", Key=self._prefix + key, Body=data) for key, data in objects])

    def create(self, key: str, data: bytes) -> bool:
        """Write the object if nothing has its key; False when something has."""
        put = partial(self._call, "put_object", Key=self._prefix + key, Body=data, IfNoneMatch="*")
        try:
            self._run(put)
        except _KeyTakenError:
            return False
        return True

    def get(self, key: str) -> bytes:
        """Return the object; raises `MissingObjectError` when there is none."""
        return self._run(lambda: self._get(key))

    def get_many(self, keys: Sequence[str]) -> Iterator[bytes | errors.StoreError]:
        """Yield the objects in the order of their keys, an error in place of each that is missing."""
        for start in range(0, len(keys), _PARALLEL):
            some = keys[start : start + _PARALLEL]
            yield from self._each([partial(self._get_or_missing, key) for key in some])

    def listing(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with `prefix`, page by page."""
        after: dict[str, Any] = {}
        while True:
            page = self._run(partial(self._call, "list_objects_v2", Prefix=self._prefix + prefix, **after))
            for found in page.get("Contents", ()):
                modified: datetime = found["LastModified"]
                yield ObjectInfo(found["Key"].removeprefix(self._prefix), found["Size"], modified.timestamp())
            if not page.get("IsTruncated"):
                return
            after = {"ContinuationToken": page["NextContinuationToken"]}

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete the objects; those that are not there are no error."""
        self._each([partial(self._call, "delete_object", Key=self._prefix + key) for key in keys])

    def sweep_temporary(self, before: float) -> int:  # noqa: ARG002 - the protocol's argument
        """Return 0: an upload that was cut off leaves no object."""
        return 0

    def query_root(self) -> tuple[str, AbstractFileSystem | None]:
        """Return the address of the prefix and the file system that opens objects below it."""
        return self.url, self._fs

    def close(self) -> None:
        """Close the connections; idempotent."""
        client = self._fs._s3  # noqa: SLF001 - s3fs closes its session only when garbage-collected
        if client is not None:
            self._fs._s3 = None  # noqa: SLF001 - a later call reconnects
            self._run(client.close)

    async def _get(self, key: str) -> bytes:
        for attempt in range(_READ_ATTEMPTS):
            try:
                data: bytes = await self._call("get_object", read=True, Key=self._prefix + key)
            except _CutOffError:
                if attempt == _READ_ATTEMPTS - 1:
                    raise
            else:
                return data
        raise AssertionError(key)

    async def _get_or_missing(self, key: str) -> bytes | errors.StoreError:
        try:
            return await self._get(key)
        except MissingObjectError as error:
            return error

    async def _call(self, method: str, *, read: bool = False, **arguments: Any) -> Any:
        """Return the answer to one request, or its body, within the deadline; raises Headgate's errors."""
        what = f"{method} {self._bucket}/{arguments.get('Key', arguments.get('Prefix', ''))}"
        wait_s = self._timeout_s + len(arguments.get("Body", b"")) / _SLOWEST_BYTES_PER_S
        try:
            async with asyncio.timeout(wait_s) as deadline:
                answer = await self._fs._call_s3(method, Bucket=self._bucket, **arguments)  # noqa: SLF001 - no public form
                if not read:
                    return answer
                body_s = self._timeout_s + answer["ContentLength"] / _SLOWEST_BYTES_PER_S
                deadline.reschedule(asyncio.get_running_loop().time() + body_s)
                async with answer["Body"] as body:
                    return await body.read()
        except TimeoutError as error:
            raise errors.StoreError(
                f"the sample store {self.url} did not answer within {wait_s:g} s ({what})"
            ) from error
        except (OSError, BotoCoreError, ClientError, aiohttp.ClientError) as error:
            raise self._store_error(error, what) from error

    def _store_error(self, error: Exception, what: str) -> errors.StoreError:
        answer = getattr(error if isinstance(error, ClientError) else error.__cause__, "response", None) or {}
        code = str(answer.get("Error", {}).get("Code", ""))
        said = f"{redacted(str(error), limit_chars=300)} ({what})"
        if isinstance(error, FileExistsError) or code in _TAKEN:
            return _KeyTakenError(f"{what}: the key is taken")
        if code in _MISSING:
            return MissingObjectError(f"{what}: there is no such object in {self.url}")
        if code in _DENIED or isinstance(error, PermissionError | NoCredentialsError):
            return errors.StoreNotWritableError(f"the sample store {self.url} cannot be used: {said}")
        if isinstance(error, aiohttp.ClientPayloadError | IncompleteReadError):
            return _CutOffError(f"the sample store {self.url} cut an answer off: {said}")
        return errors.StoreError(f"the sample store {self.url} failed: {said}")

    def _run(self, make: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        result: _T = sync(self._fs.loop, make)
        return result

    def _each(self, makes: Sequence[Callable[[], Coroutine[Any, Any, _T]]]) -> list[_T]:
        """Return the results of all calls, run `_PARALLEL` at a time; the first error cancels the others."""
        gate = asyncio.Semaphore(_PARALLEL)

        async def gated(make: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
            async with gate:
                return await make()

        async def together() -> list[_T]:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(gated(make)) for make in makes]
            except BaseExceptionGroup as failed:
                raise failed.exceptions[0] from None
            return [task.result() for task in tasks]

        return self._run(together)


class _KeyTakenError(errors.StoreError):
    """The key of a conditional put already exists."""


class _CutOffError(errors.StoreError):
    """A connection ended in the middle of an object."""
