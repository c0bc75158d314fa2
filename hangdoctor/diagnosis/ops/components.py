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
    n = len(edges)
    order = [-1] * n  # when the node was found
    low = [0] * n
    component = [-1] * n
    path: list[int] = []
    count = found = 0
    for root in range(n):
        if order[root] >= 0:
            continue
        work = [(root, iter(edges[root]))]
        order[root] = low[root] = found
        found += 1
        path.append(root)
        while work:
            node, successors = work[-1]
            for to in successors:
                if order[to] < 0:
                    order[to] = low[to] = found
                    found += 1
                    path.append(to)
                    work.append((to, iter(edges[to])))
                    break
                if component[to] < 0 and order[to] < low[node]:
                    low[node] = order[to]
            else:
                work.pop()
                if work and low[node] < low[work[-1][0]]:
                    low[work[-1][0]] = low[node]
                if low[node] == order[node]:
                    for member in _popped(path, node):
                        component[member] = count
                    count += 1
    return component


def _popped(path: list[int], last: int) -> Iterator[int]:
    """Take nodes off the end of the path, up to and with `last`."""
    while path:
        yield path[-1]
        if path.pop() == last:
            return


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
