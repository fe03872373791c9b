"""Several processes, one per GPU of a replica, that make each update together."""
