"""The stages of an RLHF step, one package per stage, each served as its own FastAPI function."""
