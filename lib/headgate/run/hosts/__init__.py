"""Hosts of environments on the nodes of a Ray cluster: asked for by demand, placed, claimed, watched and given back."""

from headgate.run.hosts.hosts import EnvironmentHosts, HostCluster

__all__ = ["EnvironmentHosts", "HostCluster"]
