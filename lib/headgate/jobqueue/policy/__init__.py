"""Policy servers: the protocol that simulators speak with them, clients, a server with baselines, a small simulator."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
