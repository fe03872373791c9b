"""Functions in virtual time: the platform port without processes, network or waiting."""
