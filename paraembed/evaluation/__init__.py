"""Evaluation of encoders: data sets, metrics and tables of scores."""
