"""Explanations of a fit: importance, contributions, partial dependence, sampling."""
