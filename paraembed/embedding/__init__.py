"""Embed a corpus by plan, parts and manifest, without Ray."""
