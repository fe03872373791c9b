"""What every test stands on: the process environment, and properties that are never judged by the clock."""

import os

from hypothesis import settings

pytest_plugins = ["tests.redis_fixture"]

# Before torch is imported: waiting threads must not spin, and nothing is ever fetched from a hub.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
