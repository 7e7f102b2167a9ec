"""Reproduce the papers' tables and figures, and compare cavity with other libraries.

    python -m experiments table2 --splits 5 --jobs 2     fit missing jobs, then show the table
    python -m experiments tables --use report --jobs 2   our methods and peers on real tables
    python -m experiments curve --jobs 2                 seconds and NLL against the number of rows
    python -m experiments --check                        refit three random rows and compare
    python -m experiments page                           write docs/results and the marked tables

A job is one fit. Its result is a row of a CSV file in benchmarks/results, written when
the fit ends. Finished jobs are skipped. `tables` and `curve` write records as JSON
lines instead, and run each fit in a process of its own. Imports go downwards: __main__;
page; figures, row_curve, tables; runner; workers; fits; table_text; table_summary,
table_runs; table_fits, table_data; targets; jobs, methods, sets.
"""
