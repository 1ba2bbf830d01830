"""Export and import of samples, in the formats of the tools that evaluators use."""
