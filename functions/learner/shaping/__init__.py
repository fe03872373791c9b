"""What is done about completions that are too long: a penalty in the reward, or no place in the loss."""
