"""Columns of a table: inspect them, and encode their cells as numbers."""
