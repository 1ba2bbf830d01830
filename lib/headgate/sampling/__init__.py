"""Sampling: rates, roster, samplers and history turn time into demand."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
