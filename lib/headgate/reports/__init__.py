"""A campaign's results for readers: reports with figures and tables, and the live view of a running campaign."""

from headgate.core import names_by_stub

__getattr__, __dir__, __all__ = names_by_stub(__name__, __file__)
