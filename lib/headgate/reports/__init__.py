"""What a campaign found, to be read: reports with figures and tables, and the live view of a running one."""

from typing import Any

import lazy_loader

from headgate.core import missing_extra

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _attribute(name)
    except ModuleNotFoundError as missing:
        raise missing_extra(missing, f"{__name__}.{name}") or missing from missing
