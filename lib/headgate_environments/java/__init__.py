"""Games that run in a Java process: kept apart, reused, and ended with their environment."""
