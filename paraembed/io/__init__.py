"""Bytes, files and tables; independent of pairs and encoders."""
