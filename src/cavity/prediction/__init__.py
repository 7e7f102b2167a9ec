"""Prediction: a fitted model, and probabilities, moments and uncertainty of rows."""
