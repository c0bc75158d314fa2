"""Strongly connected components, and those of them that nothing leads out of.

Tarjan's algorithm (R. Tarjan, "Depth-first search and linear graph algorithms", 1972) with its own
stack: chains of waits are as long as a job is wide, deeper than any recursion limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def components(edges: Sequence[Sequence[int]]) -> list[int]:
    """Number of the component of each node; a component's number is higher than those of all that
    it leads to.
    """
    search = _Search(edges)
    for root in range(len(edges)):
        if search.order[root] < 0:
            search.walk(root)
    return search.component


class _Search:
    """Tarjan's depth-first search: what is known of each node so far."""

    def __init__(self, edges: Sequence[Sequence[int]]) -> None:
        self.edges = edges
        self.order = [-1] * len(edges)  # when the node was found
        self.low = [0] * len(edges)  # the earliest node on the path that it leads back to
        self.component = [-1] * len(edges)
        self._path: list[int] = []
        self._found = 0
        self._components = 0

    def walk(self, root: int) -> None:
        """Visit all that can be reached from `root` and was not found yet."""
        order, low, component = self.order, self.low, self.component
        work = [(root, self._enter(root))]
        while work:
            node, successors = work[-1]
            for to in successors:
                if order[to] < 0:
                    work.append((to, self._enter(to)))
                    break
                if component[to] < 0:
                    low[node] = min(low[node], order[to])
            else:
                work.pop()
                if work:
                    before = work[-1][0]
                    low[before] = min(low[before], low[node])
                if low[node] == order[node]:
                    self._close(node)

    def _enter(self, node: int) -> Iterator[int]:
        self.order[node] = self.low[node] = self._found
        self._found += 1
        self._path.append(node)
        return iter(self.edges[node])

    def _close(self, first: int) -> None:
        """All nodes on the path from `first` on are one component."""
        member = -1
        while member != first:
            member = self._path.pop()
            self.component[member] = self._components
        self._components += 1


def sinks(edges: Sequence[Sequence[int]], component: Sequence[int]) -> list[list[int]]:
    """Members of each component without an edge that leaves it; nodes that touch no edge at all are
    no sinks.
    """
    count = max(component, default=-1) + 1
    leaves = bytearray(count)
    touched = bytearray(count)
    for node, successors in enumerate(edges):
        mine = component[node]
        for to in successors:
            touched[component[to]] = touched[mine] = 1
            if component[to] != mine:
                leaves[mine] = 1
    members: dict[int, list[int]] = {}
    for node, mine in enumerate(component):
        if touched[mine] and not leaves[mine]:
            members.setdefault(mine, []).append(node)
    return list(members.values())
