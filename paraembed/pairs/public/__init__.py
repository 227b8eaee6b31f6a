"""Fetch the public originals of the four papers."""
