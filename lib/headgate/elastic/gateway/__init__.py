"""The gateway: an OpenAI-compatible API in front of an elastic pool, its control API, and the file of a pool."""

from headgate.elastic.gateway.before import check_before, check_port
from headgate.elastic.gateway.client import GatewayClient
from headgate.elastic.gateway.errors import (
    BodyTooLargeError,
    ForbiddenError,
    InvalidRequestError,
    UnknownModelError,
)
from headgate.elastic.gateway.pool_file import EngineEntry, PoolFile, PoolSection, load_pool_file, read_pool_document
from headgate.elastic.gateway.server import Gateway, running_gateway
from headgate.elastic.gateway.serving import running_pool, serve_opened, serve_pool
from headgate.elastic.gateway.settings import GatewaySettings
from headgate.elastic.gateway.status import AdmissionView, GatewayStatus

__all__ = [
    "AdmissionView",
    "BodyTooLargeError",
    "EngineEntry",
    "ForbiddenError",
    "Gateway",
    "GatewayClient",
    "GatewaySettings",
    "GatewayStatus",
    "InvalidRequestError",
    "PoolFile",
    "PoolSection",
    "UnknownModelError",
    "check_before",
    "check_port",
    "load_pool_file",
    "read_pool_document",
    "running_gateway",
    "running_pool",
    "serve_opened",
    "serve_pool",
]
