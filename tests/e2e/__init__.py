"""Whole stacks of real processes, and what can happen to them. A package, so that its fixtures end with its tests."""
