"""Scores: which sets, which metric, which table."""
