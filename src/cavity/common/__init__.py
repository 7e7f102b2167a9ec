"""Code that every room may use: registries, linear algebra, files, statistics."""
