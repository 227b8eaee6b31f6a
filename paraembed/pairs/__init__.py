"""Paraphrase pairs: read, filter and shard; generate a sample."""
