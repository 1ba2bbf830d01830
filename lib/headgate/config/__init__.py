"""Settings: names, defaults, bounds, and where a value came from."""

from headgate.config.admission_settings import AdmissionSettings
from headgate.config.loading import OTHER_VARIABLES, LoadedSettings, load_settings
from headgate.config.settings import MAX_DAILY_RATE, Settings, checked_rate, setting_fields, variables_of

__all__ = [
    "MAX_DAILY_RATE",
    "OTHER_VARIABLES",
    "AdmissionSettings",
    "LoadedSettings",
    "Settings",
    "checked_rate",
    "load_settings",
    "setting_fields",
    "variables_of",
]
