"""The `ReportStore` block: where reports are published, and the address at which readers find them."""

from __future__ import annotations

import asyncio
import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from botocore.exceptions import BotoCoreError
from prefect.blocks.core import Block
from pydantic import Field, SecretStr

from blocks.sample_store import ACCESS_KEY_ID, ENDPOINT_URL, REGION, SECRET_ACCESS_KEY
from headgate.core import errors

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}\Z")


@dataclass(frozen=True, slots=True)
class PublishedReport:
    """Where a report is.

    Attributes:
        places: path or s3:// address, by file name.
        links: http(s) address, by file name; empty without a public address.
    """

    places: Mapping[str, str]
    links: Mapping[str, str]


class ReportStore(Block):
    """A folder or S3 prefix that keeps reports, and its public address. See docs/reference/prefect.md#reportstore.

    Examples:
        ```python
        from blocks import ReportStore

        reports = ReportStore.load("BLOCK_NAME")
        published = await reports.write("2026-01-31", {"report.html": html})
        ```
    """

    _block_type_name: ClassVar[str] = "Report Store"
    _block_type_slug: ClassVar[str] = "headgate-report-store"
    _logo_url: ClassVar[Any] = None

    url: str = Field(
        default=".headgate/reports", title="Place", description="A folder, or s3://bucket/prefix.", min_length=1
    )
    public_url: str = Field(
        default="",
        title="Public address",
        description="http(s) address that serves the place. Empty: reports are referred to by path.",
        pattern=r"^(https?://\S+)?$",
    )
    endpoint_url: str = ENDPOINT_URL
    region: str = REGION
    access_key_id: SecretStr = ACCESS_KEY_ID
    secret_access_key: SecretStr = SECRET_ACCESS_KEY

    async def write(self, name: str, files: Mapping[str, str | bytes]) -> PublishedReport:
        """Write the files of report `name`, replacing those of the same names, and return where they are.

        Raises:
            InvalidInputError: if a name cannot be part of a path.
            StoreNotWritableError: if the place cannot be written to.
        """
        for part in (name, *files):
            if not _NAME.match(part):
                raise errors.InvalidInputError(
                    f"report name {part!r:.80} cannot be part of a path",
                    next_step="Use 1 to 120 letters, digits or . _ - .",
                )
        contents = {file: text.encode() if isinstance(text, str) else text for file, text in files.items()}
        try:
            places = await asyncio.to_thread(
                self._to_s3 if self.url.startswith("s3://") else self._to_folder, name, contents
            )
        except (OSError, BotoCoreError) as error:
            raise errors.StoreNotWritableError(f"reports cannot be written to {self.url}: {error}") from error
        base = self.public_url.rstrip("/")
        return PublishedReport(places, {file: f"{base}/{name}/{file}" for file in files} if base else {})

    def _to_folder(self, name: str, files: Mapping[str, bytes]) -> dict[str, str]:
        folder = Path(self.url).expanduser().absolute() / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            unfinished = folder / f".{file}.part"
            unfinished.write_bytes(content)
            unfinished.replace(folder / file)
        return {file: str(folder / file) for file in files}

    def _to_s3(self, name: str, files: Mapping[str, bytes]) -> dict[str, str]:
        import s3fs  # noqa: PLC0415 - most reports go to a folder, and every flow run imports this file

        prefix = f"{self.url.removeprefix('s3://').strip('/')}/{name}"
        key, secret = self.access_key_id.get_secret_value(), self.secret_access_key.get_secret_value()
        bucket = s3fs.S3FileSystem(
            key=key or None,
            secret=secret or None,
            endpoint_url=self.endpoint_url or None,
            client_kwargs={"region_name": self.region} if self.region else {},
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        for file, content in files.items():
            # Without the content type, browsers download the page instead of showing it.
            bucket.pipe_file(f"{prefix}/{file}", content, ContentType=_content_type(file))
        return {file: f"s3://{prefix}/{file}" for file in files}


def _content_type(file: str) -> str:
    guessed = mimetypes.guess_type(file)[0] or "application/octet-stream"
    return f"{guessed}; charset=utf-8" if guessed.startswith("text/") else guessed
