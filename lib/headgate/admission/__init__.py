"""Request admission: adaptive limits, request leases, and the executor around one model call."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
