"""What a campaign found, to be read: reports with figures and tables, and the live view of a running one."""

from headgate.core import names_by_stub

__getattr__, __dir__, __all__ = names_by_stub(__name__, __file__)
