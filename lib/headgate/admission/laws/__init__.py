"""The limit laws: how many requests may be in flight at once, as outcomes teach it."""

from headgate.admission.laws.law import Admitted, LimitChange, LimitLaw

__all__ = ["Admitted", "LimitChange", "LimitLaw"]
