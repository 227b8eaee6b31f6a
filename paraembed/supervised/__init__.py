"""Encoders with a head, trained on gold labels: similarity, entailment, sentiment, choices."""
