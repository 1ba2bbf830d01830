"""The fields by which a block names a place: a folder, or an S3-compatible bucket with its keys."""

from __future__ import annotations

from pydantic import Field, SecretStr

from headgate.core import Secret
from headgate.storage import StoreLocation

ENDPOINT_URL = Field(
    default="", title="S3 endpoint", description="Address of an S3-compatible service such as R2 or MinIO. Empty: AWS."
)
REGION = Field(default="", title="S3 region", description="Region of the bucket. Empty: what the environment says.")
ACCESS_KEY_ID = Field(
    default=SecretStr(""), title="S3 access key", description="Access key of the bucket. Empty: the usual AWS sources."
)
SECRET_ACCESS_KEY = Field(
    default=SecretStr(""), title="S3 secret key", description="Secret key that belongs to the access key."
)


def location_of(
    url: str, endpoint_url: str, region: str, access_key_id: SecretStr, secret_access_key: SecretStr
) -> StoreLocation:
    """Return the place that the fields name."""
    return StoreLocation(
        url=url,
        endpoint_url=endpoint_url or None,
        region=region or None,
        key=_secret(access_key_id),
        secret=_secret(secret_access_key),
    )


def _secret(value: SecretStr) -> Secret | None:
    return Secret(value.get_secret_value()) if value.get_secret_value() else None
