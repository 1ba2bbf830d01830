"""Environment hosts on the nodes of a Ray cluster: requested on demand, placed, claimed, watched and given back."""

from headgate.run.hosts.hosts import EnvironmentHosts, HostCluster

__all__ = ["EnvironmentHosts", "HostCluster"]
