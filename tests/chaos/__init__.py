"""Faults on purpose: kills, full disks, flipped bits, silent ranks, damaged tables,
hostile clients; each is counted.

    make chaos RUNS=200        or        python -m tests.chaos --runs 200 --seed 0 [--only KIND]

Every run has one of four outcomes. Only the first two are allowed.

    survived   the result is right, to the bit
    refused    an error of ours says what is wrong
    silent     a wrong result, and no error
    broken     another error, a crash or a hang
"""
