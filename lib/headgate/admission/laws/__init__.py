"""The limit laws: how many requests may be in flight at once, learnt from outcomes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
