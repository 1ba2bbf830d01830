"""Environments: where tasks come from and how answers are scored; the registry, the episode loop and our own ones."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
