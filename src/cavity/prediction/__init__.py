"""From a fitted model and new rows to probabilities, moments and uncertainty."""
