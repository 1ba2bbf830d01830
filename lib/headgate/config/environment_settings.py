"""The settings of environments that servers serve, and of those that run in processes of their own."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, field_validator

from headgate.config.aliases import own_name


class EnvironmentSettings(BaseModel):
    """Where AgentGym servers are, and what calls, episodes and processes of environments may take."""

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
        description="Maximum number of replies per episode at an AgentGym server.",
    )
    environment_processes: int = Field(
        2,
        ge=1,
        le=64,
        validation_alias=own_name("ENVIRONMENT_PROCESSES"),
        description="Processes per collection, or per environment that runs apart, at most. Episodes go to the one "
        "with the fewest.",
    )
    environment_call_s: float = Field(
        60.0,
        gt=0,
        allow_inf_nan=False,
        validation_alias=own_name("ENVIRONMENT_CALL_S"),
        description="Deadline of one call to an environment that runs apart, the making of the environment included. "
        "After it the episode is an environment error; the process of a call that cannot be stopped is ended with all "
        "of its episodes.",
    )
    environment_memory_mib: int = Field(
        2048,
        ge=128,
        validation_alias=own_name("ENVIRONMENT_MEMORY_MIB"),
        description="Resident memory of a process of environments and of those that it started. Above it the process "
        "gets no new episodes and is replaced; above 1.5 times as much it is ended at once.",
    )

    sandbox_locks: tuple[Literal["calls", "namespaces", "files"], ...] = Field(
        ("calls", "namespaces", "files"),
        validation_alias=own_name("SANDBOX_LOCKS"),
        description="Locks behind which programs of models run: calls (always), namespaces, files. Where one of them "
        "is missing, environments that run programs are refused. With fewer, a program may read what the worker's "
        "user can read; that is said at every start and noted in `why` of every sample.",
    )

    @field_validator("sandbox_locks", mode="before")
    @classmethod
    def _split_locks(cls, value: object) -> object:
        return tuple(n.strip() for n in value.split(",") if n.strip()) if isinstance(value, str) else value

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
