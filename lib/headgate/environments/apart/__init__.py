"""Environments that run apart: in child processes, so that one that blocks, leaks or crashes harms nobody else."""

from headgate.environments.apart.frames import ApartLimits, Source
from headgate.environments.apart.host import HOSTS, end_idle_processes
from headgate.environments.apart.hosted import HostedEnvironment, hosted_environment, members_of, specs_of
from headgate.environments.apart.node import EnvironmentHost, Whereabouts
from headgate.environments.apart.remote import RemoteHost, RemoteHosts

__all__ = [
    "HOSTS",
    "ApartLimits",
    "EnvironmentHost",
    "HostedEnvironment",
    "RemoteHost",
    "RemoteHosts",
    "Source",
    "Whereabouts",
    "end_idle_processes",
    "hosted_environment",
    "members_of",
    "specs_of",
]
