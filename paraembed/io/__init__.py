"""Bytes, files and tables, without any knowledge of pairs or encoders."""
