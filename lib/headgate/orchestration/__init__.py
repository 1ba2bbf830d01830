"""What Prefect needs: flow runs that drain, artifacts, deployments, a private server, and the demo.

Importing this package loads nothing of Prefect; each name is loaded when it is first asked for.
"""

from typing import Any

import lazy_loader

from headgate.core import missing_extra

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _attribute(name)
    except ModuleNotFoundError as missing:
        raise missing_extra(missing, f"{__name__}.{name}") or missing from missing
