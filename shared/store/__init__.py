"""The port to state between calls, with a Redis and an in-memory adapter."""
