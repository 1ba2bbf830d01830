"""The job queue: hands (team, task, instance) jobs and policy servers to workers that Headgate does not start."""
