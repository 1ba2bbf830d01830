"""Request admission across processes: slots of Prefect's global concurrency limits."""
