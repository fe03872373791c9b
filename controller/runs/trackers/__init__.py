"""Where a run's metrics go besides its own history: one file per tracker."""
