"""What at least two stages, or both the functions and the controller, need."""
