"""Prefect flows of Headgate: they read parameters, call the library and publish artifacts.

Each is importable and callable as a function: `from flows.sampling import sample_environment`.
"""
