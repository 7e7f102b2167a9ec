"""Tables as the user gives them, validated and encoded as numbers for the engine."""
