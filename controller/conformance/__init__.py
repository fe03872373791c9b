"""Whether whatever answers at a URL is a stage's function: checks by the contract alone, against any image."""
