"""Embed a corpus by plan, part and manifest; no Ray."""
