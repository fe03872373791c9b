"""The torch-free process that plans a run and calls the functions step after step."""
