"""Pairs, scored pairs and the generated sample."""
