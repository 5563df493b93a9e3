"""Settings: what can be set, where each value came from, and who may call; checked once, when a process starts."""
