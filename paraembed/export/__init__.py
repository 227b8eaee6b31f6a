"""Encoders in other libraries' formats."""
