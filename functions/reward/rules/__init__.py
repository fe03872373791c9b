"""Built-in verifiers: pure functions of one completion and its data row, one file each."""
