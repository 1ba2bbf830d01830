"""Sample files in the formats of the tools that evaluators use, read and written."""
