"""Where a sample store is: addresses and credentials from what a user wrote and from the usual variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.core import Secret, errors
from headgate.storage.folder import FolderObjects
from headgate.storage.objects import ObjectStore

_ADDRESS: Final = re.compile(r"(?P<scheme>s3|r2)://(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]{1,62})(?:/(?P<prefix>.*))?\Z")
_R2_HOST: Final = ".r2.cloudflarestorage.com"


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The address of a sample store and what opens it.

    Attributes:
        url: a folder, `s3://bucket/prefix`, or `r2://bucket/prefix` (the account from `R2_ACCOUNT_ID`).
        endpoint_url: of the S3 API; None for AWS, or what `AWS_ENDPOINT_URL` says.
        region: None for what the environment says; `auto` for R2.
        key: access key id; None for the environment's (`AWS_…`, `R2_WRITE_ACCESS_KEY_ID` for R2).
        secret: secret access key, likewise.
        call_timeout_s: every request ends within this, retries included; large objects get longer.
    """

    url: str
    endpoint_url: str | None = None
    region: str | None = None
    key: Secret | None = None
    secret: Secret | None = None
    call_timeout_s: float = 30.0


def open_objects(location: StoreLocation, environ: Mapping[str, str] = os.environ) -> ObjectStore:
    """Return the place that `location` names; nothing is asked of it yet.

    Raises:
        errors.InvalidSettingError: if the address has a form that is not known.
    """
    if "://" not in location.url:
        return FolderObjects(Path(location.url).expanduser())
    found = _ADDRESS.match(location.url)
    if found is None:
        raise errors.InvalidSettingError(
            f"store {location.url!r} is not the address of a sample store",
            next_step="Give a folder, s3://bucket/prefix, or r2://bucket/prefix.",
        )
    # A folder needs nothing of the S3 client, which takes more time to import than everything else together.
    from headgate.storage.s3 import S3Objects  # noqa: PLC0415

    endpoint = location.endpoint_url or (_r2_endpoint(environ) if found["scheme"] == "r2" else None)
    is_r2 = bool(endpoint) and _R2_HOST in str(endpoint)
    return S3Objects(
        found["bucket"],
        found["prefix"] or "",
        endpoint_url=endpoint,
        region=location.region or ("auto" if is_r2 else None),
        key=location.key or (_secret(environ, "R2_WRITE_ACCESS_KEY_ID") if is_r2 else None),
        secret=location.secret or (_secret(environ, "R2_WRITE_SECRET_ACCESS_KEY") if is_r2 else None),
        call_timeout_s=location.call_timeout_s,
    )


def _r2_endpoint(environ: Mapping[str, str]) -> str:
    account = environ.get("R2_ACCOUNT_ID", "")
    if not account:
        raise errors.InvalidSettingError(
            "r2:// needs the account, and R2_ACCOUNT_ID is not set",
            next_step="Set R2_ACCOUNT_ID, or use s3:// with an endpoint.",
        )
    return f"https://{account}{_R2_HOST}"


def _secret(environ: Mapping[str, str], name: str) -> Secret | None:
    return Secret(environ[name]) if environ.get(name) else None
