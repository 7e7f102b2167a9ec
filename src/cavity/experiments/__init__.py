"""The papers' tables and figures again, and a comparison with what users would pick instead; extra `[bench]`.

    python -m cavity.experiments table2 --splits 5 --jobs 2        (the same as `cavity reproduce table2 ...`)
    python -m cavity.experiments page                              writes docs/reproduction.md from the result rows

A job is one fit; its result is a row of a CSV file, added when the fit ends. What is finished is never fitted again.
"""
