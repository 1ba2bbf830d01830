"""Tests of who may be stopped for whom, and of what is refused."""
