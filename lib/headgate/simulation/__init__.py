"""Simulated time, scripted models and stores: whole campaigns in seconds; for users' own tests, too."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
