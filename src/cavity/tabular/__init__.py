"""Tables with mixed columns: read files, inspect the columns, encode them as numbers."""
