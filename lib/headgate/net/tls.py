"""TLS with your own certificates: one pair of settings for every server."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from headgate.core.errors import InvalidSettingError

CERTIFICATE_VARIABLE: Final = "HEADGATE_TLS_CERTIFICATE"
KEY_VARIABLE: Final = "HEADGATE_TLS_KEY"


def server_context(certificate: str, key: str) -> ssl.SSLContext | None:
    """Return the TLS context of a server, or None where neither file is named.

    Args:
        certificate: PEM file with the server's certificate and its chain.
        key: PEM file with its private key; empty when it is in the other file.

    Raises:
        InvalidSettingError: naming the file and what is wrong with it.
    """
    if not certificate and not key:
        return None
    with_key = ("tls_key", key) if key else ("tls_certificate", certificate)
    for name, path, marker in (("tls_certificate", certificate, "CERTIFICATE-----"), (*with_key, "PRIVATE KEY-----")):
        try:
            if marker not in Path(path).read_text("ascii", "replace"):
                raise _wrong(name, path, f"has no line that ends in {marker}")
        except OSError as error:
            raise _wrong(name, path, f"cannot be read: {error.strerror}" if path else "is not named") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # OpenSSL would ask the terminal for the passphrase of an encrypted key.
        context.load_cert_chain(certificate, key or None, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _wrong(*with_key, f"is not the key of the certificate in {certificate}") from None
        raise _wrong(*with_key, f"cannot be used: it is damaged, or encrypted ({error.reason or error})") from None
    return context


def _wrong(name: str, path: str, what: str) -> InvalidSettingError:
    step = f"Name PEM files by {CERTIFICATE_VARIABLE} and {KEY_VARIABLE}, or neither to serve plain HTTP."
    return InvalidSettingError(f"{name}: the file {path!r} {what}", next_step=step)
