"""Placement: GPU work with priorities on Ray placement groups, preempting when it must."""
