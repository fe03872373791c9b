"""Logs, metrics and timings that every process reports in the same form."""
