"""Flows around a job queue: jobs generated, drained and tried again."""
