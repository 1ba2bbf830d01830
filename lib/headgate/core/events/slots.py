"""What happens to the slots that a process leases from a Prefect global concurrency limit."""
