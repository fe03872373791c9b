"""Where code that a model wrote is run: a process that can compute, and reach nothing."""
