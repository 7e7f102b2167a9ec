"""Which methods a subclass overrides."""

from __future__ import annotations


def mirrors(kind: type, graphs: tuple[str, ...], calls: tuple[str, ...]) -> bool:
    """Whether the methods `graphs` of a class belong to its `calls`: a subclass may
    override a call, but inherit the graph.
    """
    family = kind.__mro__
    depth = {
        name: min(i for i, parent in enumerate(family) if name in vars(parent))
        for name in (*graphs, *calls)
        if hasattr(kind, name)
    }
    written = min(depth[name] for name in graphs if name in depth)
    return all(written <= depth[name] for name in calls if name in depth)
