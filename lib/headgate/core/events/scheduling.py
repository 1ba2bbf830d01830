"""What happens to a task on its way to a worker: selections, leases, stages, the frontier."""
