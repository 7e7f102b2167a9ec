"""Read tables from files: CSV, Parquet, Arrow."""
