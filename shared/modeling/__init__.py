"""Models, sampling and losses that several stages compute with."""
