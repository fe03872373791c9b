"""What a run trains on: paths under the configured roots, rows of files, tokenised prompts, and their order."""
