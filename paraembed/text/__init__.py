"""Texts to word ids."""
