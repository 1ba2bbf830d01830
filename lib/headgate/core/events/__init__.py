# ruff: noqa: F403 - every kind of event is exported
"""The vocabulary of the one event stream: what happened, as small typed facts. Sinks live in `telemetry`."""

from headgate.core.events.campaign import *
from headgate.core.events.elastic import *
from headgate.core.events.event import *
from headgate.core.events.health import *
from headgate.core.events.placement import *
from headgate.core.events.requests import *
from headgate.core.events.scheduling import *
