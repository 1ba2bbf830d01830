"""The `SampleStore` block: where samples are stored."""

from __future__ import annotations

from typing import Any, ClassVar

from prefect.blocks.core import Block
from pydantic import Field, SecretStr

from headgate import storage
from headgate.core import Secret
from headgate.storage import StoreLocation

ENDPOINT_URL = Field(
    default="", title="S3 endpoint", description="Address of an S3-compatible service such as R2 or MinIO. Empty: AWS."
)
REGION = Field(default="", title="S3 region", description="Region of the bucket. Empty: as the environment says.")
ACCESS_KEY_ID = Field(
    default=SecretStr(""), title="S3 access key", description="Access key of the bucket. Empty: the usual AWS sources."
)
SECRET_ACCESS_KEY = Field(default=SecretStr(""), title="S3 secret key", description="Secret key of the access key.")


def location_of(
    url: str, endpoint_url: str, region: str, access_key_id: SecretStr, secret_access_key: SecretStr
) -> StoreLocation:
    """Return the location that the fields name."""
    return StoreLocation(
        url=url,
        endpoint_url=endpoint_url or None,
        region=region or None,
        key=_secret(access_key_id),
        secret=_secret(secret_access_key),
    )


def _secret(value: SecretStr) -> Secret | None:
    return Secret(value.get_secret_value()) if value.get_secret_value() else None


class SampleStore(Block):
    """A folder or S3 bucket that keeps samples as Parquet. See docs/reference/prefect.md#samplestore.

    Examples:
        ```python
        from blocks import SampleStore

        store = SampleStore.load("BLOCK_NAME").open()
        ```
    """

    _block_type_name: ClassVar[str] = "Sample Store"
    _block_type_slug: ClassVar[str] = "headgate-sample-store"
    _logo_url: ClassVar[Any] = None

    url: str = Field(
        default=".headgate/samples",
        title="Place",
        description="A folder, s3://bucket/prefix, or r2://bucket/prefix.",
        min_length=1,
    )
    endpoint_url: str = ENDPOINT_URL
    region: str = REGION
    access_key_id: SecretStr = ACCESS_KEY_ID
    secret_access_key: SecretStr = SECRET_ACCESS_KEY

    def location(self) -> storage.StoreLocation:
        """Return the address of the store and its credentials."""
        return location_of(self.url, self.endpoint_url, self.region, self.access_key_id, self.secret_access_key)

    def open(self) -> storage.SampleStore:
        """Return the store; nothing is read or written yet.

        Raises:
            InvalidSettingError: if the place has an unknown form.
        """
        return storage.open_store(self.location())
