"""Simulated time, scripted models and stores, to run whole campaigns in seconds; also for users' own tests."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
