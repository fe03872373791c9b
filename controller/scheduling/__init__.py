"""Pure policies that turn observations into a plan, one policy per file."""
