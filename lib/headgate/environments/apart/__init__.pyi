from .frames import ApartLimits as ApartLimits, Source as Source
from .host import HOSTS as HOSTS, end_idle_processes as end_idle_processes
from .hosted import (
    HostedEnvironment as HostedEnvironment,
    hosted_environment as hosted_environment,
    members_of as members_of,
    specs_of as specs_of,
)
from .node import EnvironmentHost as EnvironmentHost, Whereabouts as Whereabouts
from .remote import RemoteHost as RemoteHost, RemoteHosts as RemoteHosts
