"""Settings: names, defaults, bounds, and where a value came from."""

from headgate.config.budget_settings import EVERYWHERE, Address, BudgetSettings, meaningless, value_for
from headgate.config.loading import LoadedSettings, load_settings
from headgate.config.renamed import variables_of
from headgate.config.sections import AdmissionSettings, Command, Lane
from headgate.config.settings import MAX_DAILY_RATE, Settings, checked_rate, setting_fields

__all__ = [
    "EVERYWHERE",
    "MAX_DAILY_RATE",
    "Address",
    "AdmissionSettings",
    "BudgetSettings",
    "Command",
    "Lane",
    "LoadedSettings",
    "Settings",
    "checked_rate",
    "load_settings",
    "meaningless",
    "setting_fields",
    "value_for",
    "variables_of",
]
