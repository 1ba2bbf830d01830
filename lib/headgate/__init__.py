"""Headgate: continual, fair and safe sampling of many models on many environments.

    import headgate

    scores = await headgate.evaluate("baselines", "affine:sat", instances=20)

Names are loaded on first use. Subpackages (`headgate.jobqueue`, `headgate.placement`, …) offer the rest.
"""

from typing import Any

import lazy_loader

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    try:
        return _attribute(name)
    except ModuleNotFoundError as missing:
        from headgate.core import missing_extra  # noqa: PLC0415 - importing headgate loads nothing else of it

        raise missing_extra(missing, f"{__name__}.{name}") or missing from missing
