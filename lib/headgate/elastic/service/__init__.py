"""The pool at work: its engines, its timer, its requests, and what it shows of itself."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
