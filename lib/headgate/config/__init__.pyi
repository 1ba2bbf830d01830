from .budget_settings import (
    EVERYWHERE as EVERYWHERE,
    Address as Address,
    BudgetSettings as BudgetSettings,
    meaningless as meaningless,
    value_for as value_for,
)
from .loading import LoadedSettings as LoadedSettings, load_settings as load_settings
from .renamed import variables_of as variables_of
from .sections import AdmissionSettings as AdmissionSettings, Command as Command, Lane as Lane
from .settings import (
    MAX_DAILY_RATE as MAX_DAILY_RATE,
    Settings as Settings,
    checked_rate as checked_rate,
    setting_fields as setting_fields,
)
