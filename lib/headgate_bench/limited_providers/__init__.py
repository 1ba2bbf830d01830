"""Simulated providers with limits of every kind, and a client with an endless backlog."""

from headgate_bench.limited_providers.backlog import LoadRecord, SlotPolicy, load
from headgate_bench.limited_providers.servers import Agenda, ProviderScript, Server, server

__all__ = ["Agenda", "LoadRecord", "ProviderScript", "Server", "SlotPolicy", "load", "server"]
