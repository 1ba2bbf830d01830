"""Samples out to files and in from files, in the formats of the tools that evaluators use."""
