"""Headgate's Prefect flows: they read parameters, call the library and publish artifacts.

Each can be imported and called as a function: `from flows.sampling import sample_environment`.
"""
