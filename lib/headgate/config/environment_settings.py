"""The settings of environments that servers serve."""

from __future__ import annotations

from pydantic import BaseModel, Field, field_validator

from headgate.config.aliases import own_name


class EnvironmentSettings(BaseModel):
    """Where AgentGym servers are, and how long they and their episodes may take."""

    agentgym_servers: dict[str, str] = Field(
        default_factory=dict,
        validation_alias=own_name("AGENTGYM_SERVERS"),
        description="AgentGym servers by environment: sciworld=http://127.0.0.1:36001,webshop=http://127.0.0.1:36002. "
        "Each makes its environment one that can be sampled.",
    )
    agentgym_timeout_s: float = Field(
        60.0,
        gt=0,
        allow_inf_nan=False,
        validation_alias=own_name("AGENTGYM_TIMEOUT_S"),
        description="Deadline of one call to an AgentGym server.",
    )
    agentgym_max_rounds: int = Field(
        10,
        ge=1,
        le=1_000,
        validation_alias=own_name("AGENTGYM_MAX_ROUNDS"),
        description="Replies per episode at an AgentGym server at most.",
    )

    @field_validator("agentgym_servers", mode="before")
    @classmethod
    def _split_servers(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [part.strip() for part in value.split(",") if part.strip()]
        wrong = [part for part in pairs if "=" not in part]
        if wrong:
            raise ValueError(f"servers are written environment=address, comma separated (got {wrong[0]!r})")
        return dict(part.split("=", 1) for part in pairs)

    @field_validator("agentgym_servers")
    @classmethod
    def _are_addresses(cls, value: dict[str, str]) -> dict[str, str]:
        for environment, url in value.items():
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"the server of {environment} must be an http or https address")
        return value
