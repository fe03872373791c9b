"""Rollouts and rewards in, the next policy version out."""
