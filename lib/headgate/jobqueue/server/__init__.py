"""The job queue over HTTP: `/v1`, the legacy protocol, metrics and health; its settings, and how to serve it."""

from headgate.jobqueue.generator.exchange import Imports, read_imports
from headgate.jobqueue.server.app import build_app
from headgate.jobqueue.server.cloud_log import cloud_logging
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.server.serving import RunningServer, running_server, serve
from headgate.jobqueue.server.settings import ServerSettings, load_server_settings

__all__ = [
    "Imports",
    "RunningServer",
    "ServerSettings",
    "Service",
    "build_app",
    "cloud_logging",
    "load_server_settings",
    "read_imports",
    "running_server",
    "serve",
]
