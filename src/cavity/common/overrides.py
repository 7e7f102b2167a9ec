"""Which methods a subclass overrides."""

from __future__ import annotations


def mirrors(kind: type, graphs: tuple[str, ...], calls: tuple[str, ...]) -> bool:
    """Whether the methods `graphs` of a class belong to its `calls`.

    They do not if a subclass overrides a call, but inherits the graph.
    """
    for parent in kind.__mro__:
        own = vars(parent)
        if any(name in own for name in graphs):
            return True
        if any(name in own for name in calls):
            return False

    return False
