"""The gateway: an OpenAI-compatible API in front of an elastic pool, its control API, and the file of a pool."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
