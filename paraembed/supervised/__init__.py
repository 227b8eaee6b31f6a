"""Encoders with a head, trained on labeled examples: similarity, entailment, sentiment, choices."""
