"""Roles of a small training on real environments: rollouts play, reward scores, train learns. Plain Python and numpy.

Each can be killed at any moment and resumes from its checkpoint; they exchange data through files in a folder.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
