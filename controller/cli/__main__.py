"""``python -m controller.cli`` is the ``rlhfless`` command."""

from controller.cli.main import main

main()
