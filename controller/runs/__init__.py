"""The life of a run: its steps, its head in the store, its recovery after a crash."""
