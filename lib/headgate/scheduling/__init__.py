"""Scheduling: fair ready queue, task admission, stages, the adaptive frontier, and the loop that connects them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
