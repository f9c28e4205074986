"""Retrievers, the analysis of text they share, and the metrics of what they find."""
