"""Loads replayed through the elastic pool in virtual time, compared with the rules of other systems and with bounds."""

from headgate.core import names_by_stub

__getattr__, __dir__, __all__ = names_by_stub(__name__, __file__)
