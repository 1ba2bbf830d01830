"""Environments that run apart: in child processes, so that one that blocks, leaks or crashes harms nobody else."""

from headgate.environments.apart.frames import ApartLimits, Source
from headgate.environments.apart.host import HOSTS, end_idle_processes
from headgate.environments.apart.hosted import HostedEnvironment, hosted_environment, members_of, specs_of

__all__ = [
    "HOSTS",
    "ApartLimits",
    "HostedEnvironment",
    "Source",
    "end_idle_processes",
    "hosted_environment",
    "members_of",
    "specs_of",
]
