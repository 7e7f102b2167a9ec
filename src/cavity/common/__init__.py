"""What every room may use: registries, linear algebra, files, column statistics."""
