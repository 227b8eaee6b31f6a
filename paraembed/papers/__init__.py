"""The papers' recipes, by name."""
