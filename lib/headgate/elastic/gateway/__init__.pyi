from .startup import check_before as check_before, check_port as check_port
from .client import GatewayClient as GatewayClient
from .pool_file import (
    EngineEntry as EngineEntry,
    PoolFile as PoolFile,
    PoolSection as PoolSection,
    load_pool_file as load_pool_file,
    read_pool_document as read_pool_document,
)
from .server import Gateway as Gateway, running_gateway as running_gateway
from .startup import running_pool as running_pool, serve_pool as serve_pool
from .settings import GatewaySettings as GatewaySettings, secret_of as secret_of
from .status import AdmissionView as AdmissionView, GatewayStatus as GatewayStatus
