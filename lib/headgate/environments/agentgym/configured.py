"""From settings to the environments that AgentGym servers serve."""

from __future__ import annotations

import difflib

from headgate.config import Settings
from headgate.core.errors import InvalidSettingError
from headgate.environments.agentgym.dialects import DIALECTS, Dialect
from headgate.environments.agentgym.served import ServedEnvironment


def served_environments(settings: Settings) -> tuple[ServedEnvironment, ...]:
    """Return an environment for each server that the settings name; asks none of them.

    Raises:
        InvalidSettingError: if a server is named for what is no environment of AgentGym's.
    """
    return tuple(
        ServedEnvironment(
            _dialect(environment),
            url,
            timeout_s=settings.agentgym_timeout_s,
            max_rounds=settings.agentgym_max_rounds,
        )
        for environment, url in settings.agentgym_servers.items()
    )


def _dialect(environment: str) -> Dialect:
    known = {dialect.environment: dialect for dialect in DIALECTS}
    if environment not in known:
        near = difflib.get_close_matches(environment, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidSettingError(
            f"agentgym_servers names {environment!r}, which AgentGym has no server of{hint}",
            next_step=f"Name one of {', '.join(known)}.",
        )
    return known[environment]
