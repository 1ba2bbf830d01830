"""What a campaign found, to be read: reports with figures and tables, and the live view of a running one."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
