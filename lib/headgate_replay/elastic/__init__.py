"""Loads replayed through the elastic pool in virtual time, beside the rules of other systems and bounds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
