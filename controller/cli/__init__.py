"""The rlhfless command, a client of the REST API."""
