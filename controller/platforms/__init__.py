"""The port to whatever runs the functions, and one adapter per platform."""
