"""Reproduce the papers' tables and figures, and compare cavity with other libraries.

    python -m experiments table2 --splits 5 --jobs 2     fit what is missing, then show the table
    python -m experiments compare --sets wine glass      the same for the comparison with other libraries
    python -m experiments --check                        refit three random rows and compare
    python -m experiments page                           write docs/results and the marked tables

A job is one fit. Its result is a row of a CSV file in benchmarks/results, written when the fit ends. Finished jobs are skipped.
Imports go downwards: __main__; page; figures, comparison, tables; runner; workers; fits; peers; targets; jobs, methods, sets.
"""
