"""What all HTTP servers of Headgate share, exported as modules: how they listen and which callers they accept.

`listener` accepts and limits connections, `asgi` and `aiohttp_server` serve an application through it on an
`event_loop`, `hosts` checks host names and origins, `refusals` says when a token is required and how requests are
refused, `request_flaws` lists values that break rules, `tokens` defines what a token allows, `token_stores` stores
tokens, `authority` identifies callers by them, `tls` loads certificates. `clients` makes clients of such servers,
`connector` connects to others, which need not be trusted.
"""

__all__ = [
    "aiohttp_server",
    "asgi",
    "authority",
    "clients",
    "connector",
    "event_loop",
    "hosts",
    "listener",
    "refusals",
    "request_flaws",
    "tls",
    "token_stores",
    "tokens",
]
