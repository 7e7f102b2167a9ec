"""Files and tables that people have: CSV, Parquet, Arrow."""
