"""Reports written to a folder and to a bucket."""

# ruff: noqa: ASYNC240 - a test has nothing else to run meanwhile

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import s3fs
from moto.server import ThreadedMotoServer

from blocks import ReportStore
from headgate.core import errors


@pytest.fixture
def bucket() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    s3fs.S3FileSystem(key="k", secret="s", endpoint_url=url, skip_instance_cache=True).makedirs(
        "reports", exist_ok=True
    )
    yield url
    server.stop()


async def test_a_report_in_a_folder_is_named_by_its_path(tmp_path: Path) -> None:
    published = await ReportStore(url=str(tmp_path / "r")).write(
        "monday", {"report.html": "<p>ä</p>", "a.png": b"\x89"}
    )
    assert Path(published.places["report.html"]).read_text("utf-8") == "<p>ä</p>"
    assert Path(published.places["a.png"]).read_bytes() == b"\x89"
    assert published.links == {}
    assert sorted(p.name for p in (tmp_path / "r/monday").iterdir()) == ["a.png", "report.html"]


async def test_a_public_address_makes_links(tmp_path: Path) -> None:
    store = ReportStore(url=str(tmp_path), public_url="https://reports.example.com/x/")
    published = await store.write("monday", {"report.html": ""})
    assert published.links == {"report.html": "https://reports.example.com/x/monday/report.html"}


async def test_a_report_in_a_bucket_opens_in_a_browser(bucket: str) -> None:
    store = ReportStore(url="s3://reports/daily", endpoint_url=bucket, access_key_id="k", secret_access_key="s")
    published = await store.write("monday", {"report.html": "<p>x</p>"})
    assert published.places == {"report.html": "s3://reports/daily/monday/report.html"}
    reading = s3fs.S3FileSystem(key="k", secret="s", endpoint_url=bucket, skip_instance_cache=True)
    assert reading.cat("reports/daily/monday/report.html") == b"<p>x</p>"
    assert reading.info("reports/daily/monday/report.html")["ContentType"] == "text/html; charset=utf-8"


async def test_a_bucket_that_does_not_exist_is_a_store_that_cannot_be_written(bucket: str) -> None:
    store = ReportStore(url="s3://nothere/x", endpoint_url=bucket, access_key_id="k", secret_access_key="s")
    with pytest.raises(errors.StoreNotWritableError, match="s3://nothere/x"):
        await store.write("monday", {"report.html": ""})


async def test_a_folder_that_is_a_file_is_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.StoreNotWritableError, match="file"):
        await ReportStore(url=str(tmp_path / "file")).write("monday", {"report.html": ""})


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden"])
async def test_a_name_cannot_leave_the_place(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.InvalidInputError, match="cannot be part of a path"):
        await ReportStore(url=str(tmp_path)).write(name, {"report.html": ""})
    with pytest.raises(errors.InvalidInputError, match="cannot be part of a path"):
        await ReportStore(url=str(tmp_path)).write("fine", {name: ""})
