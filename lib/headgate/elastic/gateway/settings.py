"""Settings of a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from headgate.core import Secret
from headgate.core.flaws import text_like
from headgate.elastic.errors import InvalidElasticError

# What was written may be the key itself, and is not told.
_VARIABLE = "must be the name of an environment variable that holds the key (got something else)"
Variable = Annotated[str, AfterValidator(text_like("[A-Za-z_][A-Za-z0-9_]*", _VARIABLE))]
# By the names of their tokens; one variable alone is a token without a name.
Variables = Annotated[dict[str, Variable], BeforeValidator(lambda one: {"": one} if isinstance(one, str) else one)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GatewaySettings(BaseModel):
    """How a gateway listens, and whom it serves.

    Attributes:
        host: address to listen on; beyond this machine only with tokens.
        port: 0 for any free one.
        tokens_env: name -> environment variable with the token of whoever has that name; or one variable alone.
            Without any nobody is asked for a token.
        tokens: database of further tokens, such as sqlite:///.headgate/tokens.db; `headgate jobqueue token` changes it
            while the gateway runs. The scope `submit` asks models, `read` sees the pool, `admin` steers it, too.
        operators_env: the same for those who may steer the pool; without any, whoever may ask models may.
        weights: group -> its share when requests wait for admission; 1 for all others.
        tls_certificate: PEM file of the certificate to serve HTTPS with; HEADGATE_TLS_CERTIFICATE by default.
        tls_key: PEM file of its private key; HEADGATE_TLS_KEY by default.
        max_body_bytes: the largest request that is read.
        drain_s: requests in flight get so long to end when the gateway stops.
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
        InvalidElasticError: the variable is not set; `place` says who names it.
    """
    if not (value := environ.get(variable, "").strip()):
        raise InvalidElasticError(
            f"{place} names the environment variable {variable}, which is not set",
            next_step=f"Set {variable}, or leave it out.",
        )
    return Secret(value)
