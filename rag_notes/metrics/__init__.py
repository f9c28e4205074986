"""Scores of an answer and of what its searches retrieved, and the statistics of scores."""
