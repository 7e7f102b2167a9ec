"""Every method, algorithm, figure and table of the four documents, as rows that run.

`tools/coverage_page.py` writes docs/results/coverage.md from them.
"""
