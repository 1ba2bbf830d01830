"""Flows for a job queue: generate jobs, drain the queue, retry dead jobs."""
