"""Environments that run apart: in child processes, so that one that blocks, leaks or crashes affects no other."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
