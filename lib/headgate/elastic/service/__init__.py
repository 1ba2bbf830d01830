"""The pool as a service: its engines, its timer, its requests, and its status."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
