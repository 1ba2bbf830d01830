"""Headgate: continual, fair and safe sampling of many models on many environments.

    import headgate

    scores = await headgate.evaluate("baselines", "affine:sat", instances=20)

Names are loaded when they are first asked for. Rooms (`headgate.jobqueue`, `headgate.placement`, …) offer the rest.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
