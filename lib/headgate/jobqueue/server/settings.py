"""Every setting of the job queue's server, and where its value comes from: flag > environment > default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from headgate.config import Address, Command
from headgate.core import redacted
from headgate.core.errors import InvalidSettingError, did_you_mean
from headgate.core.flaws import rule_in_words
from headgate.net.tls import CERTIFICATE_VARIABLE, KEY_VARIABLE

PREFIX: Final = "HEADGATE_JOBQUEUE_"

CLIENT_VARIABLES: Final = frozenset({"HEADGATE_JOBQUEUE_URL", "HEADGATE_JOBQUEUE_TOKEN"})
"""Variables with the same prefix that are not the server's: workers and commands read them."""

_FORMER_VARIABLES: Final = {f"{PREFIX}SEED_ACQUIRE_WAIT_S": "legacy_acquire_wait_s"}
_SHARED_VARIABLES: Final = {
    CERTIFICATE_VARIABLE: "tls_certificate", KEY_VARIABLE: "tls_key",
    "HEADGATE_NOTIFY_URL": "notify_url", "HEADGATE_NOTIFY_SECRET": "notify_secret",
    "HEADGATE_NOTIFY_COMMAND": "notify_command",
}  # fmt: skip
"""Variables that every server of Headgate reads."""


class ServerSettings(BaseModel):
    """The server's settings. Durations in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database: str = Field(
        "sqlite:///.headgate/jobqueue.db", description="Where jobs live: sqlite:///path, postgresql://… or memory:."
    )
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on; any but loopback needs tokens.")
    port: int = Field(8000, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    tls_certificate: str = Field(
        "", description="PEM file of the certificate for HTTPS; also HEADGATE_TLS_CERTIFICATE."
    )
    tls_key: str = Field("", description="PEM file of its private key; also HEADGATE_TLS_KEY.")
    legacy_routes: bool = Field(True, description="Serve workers of the legacy protocol.")
    job_heartbeat_timeout_s: float = Field(
        3600.0, ge=1, le=604_800, allow_inf_nan=False, description="Lease of a job for legacy-protocol workers."
    )
    resource_heartbeat_timeout_s: float = Field(
        1200.0,
        ge=1,
        le=604_800,
        allow_inf_nan=False,
        description="Lease of a server for legacy-protocol workers.",
    )
    legacy_acquire_wait_s: float = Field(
        50.0, ge=0, le=300, allow_inf_nan=False, description="Longest wait of the legacy protocol's acquire, then 429."
    )
    rate_per_s: float = Field(1000.0, gt=0, le=1e6, description="Sustained requests per second of one token.")
    rate_burst: int = Field(2000, ge=1, le=10_000_000, description="Burst of requests of one token.")
    most_open_per_token: int = Field(12_000, ge=1, le=1_000_000, description="Open requests of one token.")
    most_connections: int = Field(
        20_000, ge=1, le=1_000_000, description="Connections in total; idle ones make room for more."
    )
    body_bytes: int = Field(1024**2, ge=1024, le=1024**3, description="Largest body of an ordinary request.")
    batch_body_bytes: int = Field(16 * 1024**2, ge=1024, le=1024**3, description="Largest body of a batch.")
    body_deadline_s: float = Field(10.0, gt=0, le=3600, description="Time for a request's body to arrive.")
    statistics_every_s: float = Field(
        60.0, ge=0, le=86_400, description="Interval of the log line of statistics; 0: none."
    )
    health_check_every_s: float = Field(
        10.0, ge=0, le=86_400, allow_inf_nan=False, description="Interval of health checks of a policy server; 0: none."
    )
    health_check_timeout_s: float = Field(3.0, gt=0, le=300, description="Time for a policy server to answer a check.")
    health_check_failures: int = Field(3, ge=1, le=1000, description="Failed checks in a row after which it is down.")
    health_checks_at_once: int = Field(32, ge=1, le=10_000, description="Policy servers checked at a time.")
    allow_link_local: bool = Field(
        False, description="Allow policy servers at link-local addresses, where clouds serve machines' credentials."
    )
    notify_url: Address = Field("", description="Webhook for notices of jobs that died; also HEADGATE_NOTIFY_URL.")
    notify_secret: SecretStr = Field(
        SecretStr(""), description="Secret that its notices are signed with; also HEADGATE_NOTIFY_SECRET."
    )
    notify_command: Command = Field(
        (), description="Command that is run for each job that died; also HEADGATE_NOTIFY_COMMAND."
    )
    notify_timeout_s: float = Field(
        10.0, gt=0, le=600, description="A command, or an attempt to post a notice, is given up after this long."
    )
    stop_s: float = Field(10.0, ge=0, le=3600, description="Time at shutdown to finish answers that are being written.")


def load_server_settings(flags: Mapping[str, Any] | None = None, *, environ: Mapping[str, str]) -> ServerSettings:
    """Return the settings that result from flags, variables `HEADGATE_JOBQUEUE_…` and the defaults.

    Args:
        flags: setting name -> value; None values are absent flags.
        environ: the process environment.

    Raises:
        InvalidSettingError: for an unknown name or a value out of its bounds.
    """
    own = {PREFIX + name.upper(): name for name in ServerSettings.model_fields}
    known = _SHARED_VARIABLES | _FORMER_VARIABLES | own
    for variable in environ.keys() - known.keys() - CLIENT_VARIABLES:
        if variable.startswith(PREFIX) and environ[variable]:
            raise InvalidSettingError(
                f"unknown setting {variable!r}{did_you_mean(variable, [*own, *CLIENT_VARIABLES])}"
            )
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    for name in given.keys() - ServerSettings.model_fields.keys():
        raise InvalidSettingError(f"unknown setting {name!r}{did_you_mean(name, ServerSettings.model_fields)}")
    variables = {name: variable for variable, name in known.items() if environ.get(variable)}
    values = {name: environ[variable] for name, variable in variables.items()} | given
    origins = {name: f"env {variable}" for name, variable in variables.items()} | dict.fromkeys(given, "flag")
    try:
        return ServerSettings.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise InvalidSettingError("; ".join(_sentence(item, origins) for item in found)) from None


def _sentence(error: Any, origins: Mapping[str, str]) -> str:
    name = str(error["loc"][0])
    shown = "" if name == "database" else f", got {redacted(repr(error['input']))}"
    return f"{name}: {rule_in_words(error)}{shown} ({origins[name]})"
