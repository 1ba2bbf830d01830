"""Addresses of sample stores, and where credentials come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.core import Secret, errors
from headgate.storage import StoreLocation, open_store
from headgate.storage.objects import FolderObjects
from headgate.storage.s3 import S3Objects
from headgate.storage.store import open_objects

R2 = {"R2_ACCOUNT_ID": "acc", "R2_WRITE_ACCESS_KEY_ID": "id-of-r2", "R2_WRITE_SECRET_ACCESS_KEY": "secret-of-r2"}


def _client(location: StoreLocation, environ: dict[str, str]) -> dict[str, Any]:
    objects = open_objects(location, environ)
    assert isinstance(objects, S3Objects)
    files = objects._fs
    region = files.client_kwargs.get("region_name")
    return {"endpoint": files.endpoint_url, "key": files.key, "secret": files.secret, "region": region}


def test_a_path_is_a_folder(tmp_path: Path) -> None:
    objects = open_objects(StoreLocation(str(tmp_path)), {})
    assert isinstance(objects, FolderObjects)
    assert objects.url == str(tmp_path)
    assert open_store(str(tmp_path)).url == str(tmp_path)


def test_a_bucket_of_aws_takes_what_aws_tools_take() -> None:
    found = _client(StoreLocation("s3://bucket/some/prefix"), R2)
    assert found == {"endpoint": None, "key": None, "secret": None, "region": None}


def test_given_keys_go_before_those_of_the_environment() -> None:
    location = StoreLocation("r2://bucket", key=Secret("mine-id"), secret=Secret("mine-secret"), region="weur")
    found = _client(location, R2)
    assert (found["key"], found["secret"], found["region"]) == ("mine-id", "mine-secret", "weur")


def test_r2_is_known_by_its_account() -> None:
    expected = {
        "endpoint": "https://acc.r2.cloudflarestorage.com",
        "key": "id-of-r2",
        "secret": "secret-of-r2",
        "region": "auto",
    }
    assert _client(StoreLocation("r2://bucket/x"), R2) == expected
    assert _client(StoreLocation("s3://bucket/x", endpoint_url=expected["endpoint"]), R2) == expected


def test_r2_without_an_account_says_what_to_set() -> None:
    with pytest.raises(errors.InvalidSettingError, match="R2_ACCOUNT_ID"):
        open_objects(StoreLocation("r2://bucket"), {})


@pytest.mark.parametrize("url", ["gs://bucket", "s3://", "s3:///prefix", "s3://b!d/x", "http://host/bucket"])
def test_an_address_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(errors.InvalidSettingError, match="is not the address of a sample store"):
        open_objects(StoreLocation(url), {})


def test_no_key_shows_in_the_address_or_the_location() -> None:
    location = StoreLocation("s3://bucket/x", key=Secret("visible-id"), secret=Secret("visible-secret"))
    objects = open_objects(location, {})
    assert objects.url == "s3://bucket/x/"
    assert "visible" not in repr(location)
