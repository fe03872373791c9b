"""The stage protocol, written once for every function."""
