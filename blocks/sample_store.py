"""The `SampleStore` block: where samples are kept."""

from __future__ import annotations

from typing import Any, ClassVar

from prefect.blocks.core import Block
from pydantic import Field, SecretStr

from blocks import storage_fields
from headgate import storage


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
    endpoint_url: str = storage_fields.ENDPOINT_URL
    region: str = storage_fields.REGION
    access_key_id: SecretStr = storage_fields.ACCESS_KEY_ID
    secret_access_key: SecretStr = storage_fields.SECRET_ACCESS_KEY

    def location(self) -> storage.StoreLocation:
        """Return the address of the store and what opens it."""
        return storage_fields.location_of(
            self.url, self.endpoint_url, self.region, self.access_key_id, self.secret_access_key
        )

    def open(self) -> storage.SampleStore:
        """Return the store; nothing is read or written yet.

        Raises:
            InvalidSettingError: if the place has a form that is not known.
        """
        return storage.open_store(self.location())
