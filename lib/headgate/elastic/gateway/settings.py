"""Settings of a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from headgate.core import Secret
from headgate.core.flaws import text_like
from headgate.elastic.errors import InvalidElasticError

# The value may be the key itself, so the message does not show it.
_VARIABLE = "must be the name of an environment variable that holds the key (got something else)"
Variable = Annotated[str, AfterValidator(text_like("[A-Za-z_][A-Za-z0-9_]*", _VARIABLE))]
# Name of the token -> variable; a variable alone is a token without a name.
Variables = Annotated[dict[str, Variable], BeforeValidator(lambda one: {"": one} if isinstance(one, str) else one)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GatewaySettings(BaseModel):
    """How a gateway listens, and whom it serves.

    Attributes:
        host: address to listen on; one that other machines can reach needs tokens.
        port: port to listen on; 0 for any free one.
        tokens_env: name -> environment variable with the token of the caller of that name; or one variable alone.
            Without any, no token is required.
        tokens: database of further tokens, such as sqlite:///.headgate/tokens.db; `headgate jobqueue token` changes it
            while the gateway runs. The scope `submit` may ask models, `read` see the pool, `admin` steer it, too.
        operators_env: the same for tokens that may also steer the pool; without any, all that may ask models may steer.
        weights: group -> its share when requests wait for admission; 1 for all others.
        tls_certificate: PEM file of the certificate to serve HTTPS with; HEADGATE_TLS_CERTIFICATE by default.
        tls_key: PEM file of its private key; HEADGATE_TLS_KEY by default.
        max_body_bytes: the largest request body that is accepted.
        drain_s: seconds that requests in flight get to end when the gateway stops.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8080, ge=0, le=65_535)
    tokens_env: Variables = Field(default_factory=dict)
    tokens: str = ""
    operators_env: Variables = Field(default_factory=dict)
    weights: dict[str, Weight] = Field(default_factory=dict)
    tls_certificate: str = ""
    tls_key: str = ""
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    drain_s: float = Field(default=30.0, ge=0, allow_inf_nan=False)


def secret_of(variable: str, environ: Mapping[str, str], place: str) -> Secret:
    """Return the secret in an environment variable.

    Raises:
        InvalidElasticError: the variable is not set; `place` is the setting that names it.
    """
    if not (value := environ.get(variable, "").strip()):
        raise InvalidElasticError(
            f"{place} names the environment variable {variable}, which is not set",
            next_step=f"Set {variable}, or leave it out.",
        )
    return Secret(value)
