"""The versioned REST API through which runs are started, watched and ended."""
