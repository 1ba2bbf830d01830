"""Budgets: what a sample may spend, and what a model may spend per day, decided before a request is sent."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
