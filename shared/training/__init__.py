"""What the stages that run a model over whole completions share: rows, batches, forward passes, optimizer."""
