"""What a fit is given: rows in memory or in a source, validated and ready for the engine."""
