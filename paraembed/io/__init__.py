"""Bytes, files, tables; nothing here knows of pairs or encoders."""
