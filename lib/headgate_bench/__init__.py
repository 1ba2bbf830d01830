"""Benchmarks: scenarios beside their rivals, artifacts with everything that a figure depends on, and their report."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
