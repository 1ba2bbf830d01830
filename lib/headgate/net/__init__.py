"""What every HTTP server of Headgate shares, offered as modules: how it listens and whom it answers.

`listener` accepts connections and bounds them, `asgi` and `aiohttp_server` serve an application by it on an
`event_loop`, `hosts` tells names and web pages apart, `refusals` says who has to show a token and how a request is
refused, `request_flaws` which of its values break rules, `tokens` says what a token allows, `token_stores` keeps them
and `authority` tells callers by them, `tls` loads certificates. `clients` makes clients of such servers.
"""

__all__ = [
    "aiohttp_server",
    "asgi",
    "authority",
    "clients",
    "event_loop",
    "hosts",
    "listener",
    "refusals",
    "request_flaws",
    "tls",
    "token_stores",
    "tokens",
]
