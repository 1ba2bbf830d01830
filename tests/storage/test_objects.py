"""What every place for objects does: one suite for the folder and for S3."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from headgate.core import errors
from headgate.storage.objects import FolderObjects, MissingObjectError, ObjectStore
from tests.storage.places import IN_BOTH

NAMES = [f"samples/environment=affine%3Asat/date=2026-01-01/part-{number}.parquet" for number in range(40)]


@IN_BOTH
def test_an_object_that_was_put_is_given_back_and_listed(objects: ObjectStore) -> None:
    objects.put_many([(name, name.encode() * number) for number, name in enumerate(NAMES)])
    assert list(objects.get_many(NAMES)) == [name.encode() * number for number, name in enumerate(NAMES)]
    listed = {found.key: found.size_bytes for found in objects.listing("samples/")}
    assert listed == {name: len(name) * number for number, name in enumerate(NAMES)}


def test_a_new_store_is_durable_with_all_of_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr("headgate.storage.objects.flush_folder", flushed.append)
    (tmp_path / "a").mkdir()  # by another process, which may have died before flushing
    FolderObjects(tmp_path / "a" / "b").put_many([("c/d", b"1")])
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"} <= set(flushed)


@pytest.mark.parametrize(("number", "is_told"), [(errno.EIO, True), (errno.EACCES, False), (errno.EINVAL, False)])
def test_a_disk_error_of_a_folder_above_a_new_store_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_told: bool
) -> None:
    """One that this user may not open, or whose file system cannot flush it, is passed over."""

    def flush(folder: Path) -> None:
        if folder == tmp_path.parent:
            raise OSError(number, os.strerror(number), str(folder))

    monkeypatch.setattr("headgate.storage.objects.flush_folder", flush)
    objects = FolderObjects(tmp_path / "a" / "b")
    with (
        pytest.raises(errors.StoreError, match=f"Input/output error at {tmp_path.parent}") if is_told else nullcontext()
    ):
        objects.put_many([("c/d", b"1")])


@IN_BOTH
def test_putting_again_replaces(objects: ObjectStore) -> None:
    objects.put_many([("a/b", b"old")])
    objects.put_many([("a/b", b"new")])
    assert objects.get("a/b") == b"new"


@IN_BOTH
def test_create_refuses_a_key_that_is_taken(objects: ObjectStore) -> None:
    assert objects.create("manifests/one.json", b"first")
    assert not objects.create("manifests/one.json", b"second")
    assert objects.get("manifests/one.json") == b"first"


@IN_BOTH
def test_of_many_creators_at_once_one_wins(objects: ObjectStore) -> None:
    gate = threading.Barrier(8)

    def create(number: int) -> bool:
        gate.wait()
        return objects.create("manifests/raced.json", f"{number}".encode())

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert sum(won) == 1
    assert objects.get("manifests/raced.json") == f"{won.index(True)}".encode()


@IN_BOTH
def test_a_missing_object_is_named(objects: ObjectStore) -> None:
    objects.put_many([("there", b"1")])
    with pytest.raises(MissingObjectError, match="no/such"):
        objects.get("no/such")
    found = list(objects.get_many(["there", "no/such"]))
    assert found[0] == b"1"
    assert isinstance(found[1], MissingObjectError)


@IN_BOTH
def test_deleting_is_no_error_twice(objects: ObjectStore) -> None:
    objects.put_many([("x/a", b"1"), ("x/b", b"2")])
    objects.delete_many(["x/a", "x/none"])
    objects.delete_many(["x/a"])
    assert [found.key for found in objects.listing("x/")] == ["x/b"]


@IN_BOTH
def test_listing_a_prefix_that_is_not_there_gives_nothing(objects: ObjectStore) -> None:
    assert list(objects.listing("nothing/")) == []


def test_more_objects_than_a_page_are_listed(s3_objects: Callable[..., ObjectStore]) -> None:
    objects = s3_objects()
    names = {f"many/{number:04d}" for number in range(20)}
    objects.put_many([(name, b"") for name in names])
    assert {found.key for found in objects.listing("many/")} == names


def test_a_closed_s3_store_connects_anew(s3_objects: Callable[..., ObjectStore]) -> None:
    objects = s3_objects()
    objects.put_many([("a", b"1")])
    objects.close()
    objects.close()
    assert objects.get("a") == b"1"


def test_temporary_files_of_dead_writers_are_swept_by_age(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    (tmp_path / ".tmp").mkdir()
    for name, age_s in (("old", 100.0), ("young", 0.0)):
        (tmp_path / ".tmp" / name).write_bytes(b"half")
        os.utime(tmp_path / ".tmp" / name, (1_000_000.0 - age_s, 1_000_000.0 - age_s))
    assert objects.sweep_temporary(before=1_000_000.0 - 50) == 1
    assert [path.name for path in (tmp_path / ".tmp").iterdir()] == ["young"]


def test_a_full_disk_is_a_store_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = FolderObjects(tmp_path)

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        patched.setattr("headgate.storage.objects.flush_folder", lambda _folder: None)
        with pytest.raises(errors.StoreError, match="no space is left") as caught:
            objects.put_many([("samples/a", b"1")])
    assert not isinstance(caught.value, errors.StoreNotWritableError)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    objects.put_many([("samples/a", b"1")])
    assert objects.get("samples/a") == b"1"


def test_a_write_that_the_kernel_refuses_for_its_size_is_a_store_error(tmp_path: Path) -> None:
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from headgate.core import errors\n"
        "from headgate.storage.objects import FolderObjects\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    FolderObjects(Path(sys.argv[1])).put_many([('big', b'x' * 10_000)])\n"
        "except errors.StoreError as error:\n"
        "    print(error)\n"
    )
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "no space is left" in done.stdout
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_place_that_is_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(errors.StoreNotWritableError, match="Not a directory"):
        FolderObjects(tmp_path / "file" / "store").put_many([("a", b"1")])


def test_without_hard_links_an_object_is_still_created_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(_self: Path, _target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", unsupported)
    objects = FolderObjects(tmp_path)
    assert objects.create("m", b"first")
    assert not objects.create("m", b"second")
    assert objects.get("m") == b"first"
    assert list((tmp_path / ".tmp").iterdir()) == []
