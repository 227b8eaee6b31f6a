"""Teach a static encoder: unit vectors whose mean is the vector that a sentence encoder, the teacher, gives a text."""
