"""From a configuration and a table to a trained model: build the engine, run it,
monitor it.
"""
