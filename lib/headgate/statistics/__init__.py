"""Statistics of evaluations: pure functions on arrays that treat repeated samples of a task as one task."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
