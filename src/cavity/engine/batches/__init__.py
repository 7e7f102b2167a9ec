"""Rows for the engine: batches with row numbers, from memory or from a source that is
read in pieces.
"""
