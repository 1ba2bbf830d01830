"""P5: the job queue under load, under kills, and next to other queues; one file per question."""

__all__: list[str] = []
