"""Benchmarks: scenarios next to their rivals, artifacts with everything that a figure depends on, and a report."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
