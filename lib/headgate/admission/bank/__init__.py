"""The slot bank: what a process holds of a limit that processes share, decided without input and output."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
