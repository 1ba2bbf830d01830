"""Where a policy server is."""

from __future__ import annotations

import re
from typing import Final

from headgate.jobqueue.policy.errors import PolicyUnreachableError

_HOST: Final = re.compile(r"[A-Za-z0-9._~-]{1,253}|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?\]?")


def policy_url(host: str, port: int) -> str:
    """Return the websocket address of a policy server; `host` is a name or an address, with or without `ws(s)://`.

    Raises:
        PolicyUnreachableError: if nothing can be there.
    """
    scheme, separator, name = host.rpartition("://")
    name = name.rstrip("/")
    if (separator and scheme not in ("ws", "wss")) or _HOST.fullmatch(name) is None:
        raise PolicyUnreachableError(
            f"{host!r:.300} is no host of a policy server",
            next_step="Give a host name or address, such as gpu-7.example.com.",
        )
    if not 1 <= port <= 65535:
        raise PolicyUnreachableError(
            f"the port of a policy server must be in 1..65535 (got {port})", next_step="Correct the port."
        )
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"
    return f"{scheme or 'ws'}://{name}:{port}"
