"""The seed's table: 95 models, eight environments and their daily rates."""

from __future__ import annotations

from headgate.core import Model

RATES = {
    "affine:sat": 100.0,
    "affine:abd": 100.0,
    "affine:ded": 100.0,
    "agentgym:webshop": 100.0,
    "agentgym:textcraft": 100.0,
    "agentgym:babyai": 120.0,
    "agentgym:alfworld": 80.0,
    "agentgym:sciworld": 80.0,
}
MODELS = [Model(f"acme/model-{number}", uid=number) for number in range(95)]
NOW = 1_767_225_600.0
HOUR_S = 3_600.0
DAY_S = 86_400.0
