"""Adapters of collections: one module for each package whose environments are played under a prefix of their own."""
