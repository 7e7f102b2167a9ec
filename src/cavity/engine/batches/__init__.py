"""Batches of rows for the engine, from memory or from a source read in pieces."""
