"""A run of a campaign that joins demand, queue, workers, journal and store."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
