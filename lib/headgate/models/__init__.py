"""The model client and its retry policy; the baselines and the local endpoint that serves them, with faults."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
