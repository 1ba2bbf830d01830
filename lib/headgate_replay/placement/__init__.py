"""Job traces replayed through the placement ledger in virtual time, beside other policies and bounds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
