"""What a fit is given, validated and ready for the engine: `files`, their `columns` as
numbers, `batches`.
"""
