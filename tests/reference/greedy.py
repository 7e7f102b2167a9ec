"""Greedy choice of an active set, inverses written out. [thesis 4.1.2, algorithm 3]"""

import numpy as np


def largest_conditional_variance(k, U, M, first):
    """Choose M rows of U: `first`, then those of largest variance given the others.

    The variance is k(u, u) − k(u, I) k(I, I)⁻¹ k(I, u).
    """
    chosen = [first]
    while len(chosen) < M:
        active = U[chosen]
        across = k(active, U)
        explained = np.sum(across * (np.linalg.inv(k(active, active)) @ across), axis=0)
        variance = np.diag(k(U, U)) - explained
        variance[chosen] = -1
        chosen.append(int(np.argmax(variance)))
    return chosen
