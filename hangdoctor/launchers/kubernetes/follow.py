"""The pods of a job as they come and go, while agents run in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from ...errors import HangdoctorError
from ...model.capture import JobCapture, SilentNode
from ...model.members import Members
from ...readers.ranks_by_node import ranks_behind
from .. import told_nodes
from ..kept_agents import Changes
from ..told_nodes import NodeTold
from . import pods
from .condition import trouble_of
from .person import commands_of
from .pods import Pod
from .reach import K8sReach

_OVER_S = 60.0  # after the end of a pod: what restarts jobs needs some time
_NONE_LEFT = "not found"  # kubectl, of one pod or job by its name


class FollowedPods:
    """The pods of a `K8sReach` from now on; see `kept_agents.Follows`.

    Asked by one thread, while others read what it found last.
    """

    def __init__(
        self,
        reach: K8sReach,
        words: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`words`: those of the agents that run in the pods of `reach` already."""
        self.reach, self.words, self.clock = reach, words, clock
        self.watched = {pod.name: _identity(pod) for pod in reach.asked}
        self._order = [pod.name for pod in reach.pods]
        self._told: Mapping[str, NodeTold] = reach.told()
        self._coming = False
        self._listed_last = list(reach.pods)
        self._let_go_at = float("-inf")
        self._members = Members()
        self._count(reach.pods)

    def changes(self) -> Changes:
        """What has changed since the last call: asks the cluster, for at most some seconds."""
        try:
            listed = pods.in_order(self._listed())
        except HangdoctorError as error:
            return Changes(trouble=f"{error}. The agents that run are not affected")
        now = {pod.name: pod for pod in listed}
        told = {name: known for name, pod in now.items() if (known := self._trouble(pod))}
        ended = self._let_go(now, told)
        begun = [pod for pod in listed if pod.name not in told and self._is_new(pod)]
        changes = Changes(ended={name: known.says for name, known in ended.items()})
        self._order = list(dict.fromkeys([*self._order, *now]))
        gone = {name: known for name, known in self._told.items() if name not in now}
        self._told = {**gone, **ended, **told}
        if begun:
            self._take_up(begun, changes)
        self._count(listed)
        return changes

    def members(self) -> Members:
        """The nodes as they were at the last call of `changes`."""
        return self._members

    def waits(self) -> bool:
        """Whether pods of the job may still come."""
        return self._coming or self.clock() - self._let_go_at < _OVER_S

    def enter(self, capture: JobCapture) -> None:
        """Put into a capture what the cluster says of pods that no agent answered from."""
        told, reach = self._told, self.reach
        silent = {node.node: node for node in capture.silent}
        reported = {node.node: sorted(r.rank for r in node.ranks) for node in capture.nodes}
        reported |= {name: node.ranks for name, node in silent.items() if node.ranks}
        here = {pod.name for pod in self._listed_last}
        unknown = [name for name in told if name in here and name not in reported]
        order = [name for name in self._order if name in reported or name in unknown]
        behind = ranks_behind(order, reported, unknown, capture.world_size)
        for name in unknown:
            ranks = behind.get(name, [])
            if name in silent:
                silent[name].ranks = ranks
            elif ranks or told[name].unstarted:
                capture.silent.append(SilentNode(name, told[name].says, ranks))
        told_nodes.enter(capture, told)
        capture.site = commands_of(
            reach.kubectl, reach.target.wanted, self._listed_last, reach.container
        )

    def _listed(self) -> list[Pod]:
        try:
            return self.reach.listed()
        except HangdoctorError as error:
            if _NONE_LEFT in str(error):
                return []
            raise

    def _trouble(self, pod: Pod) -> NodeTold | None:
        trouble = trouble_of(pod, self.reach.container(pod))
        return self.reach.in_words(pod, trouble) if trouble is not None else None

    def _is_new(self, pod: Pod) -> bool:
        return pod.name not in self.watched and not pod.metadata.deletion_timestamp

    def _let_go(self, now: Mapping[str, Pod], told: Mapping[str, NodeTold]) -> dict[str, NodeTold]:
        """{pod that no agent is needed in any more: why}."""
        ended: dict[str, NodeTold] = {}
        for name, identity in list(self.watched.items()):
            if name not in now:
                ended[name] = self._removed(name, "the pod was deleted")
            elif _identity(now[name]) != identity:
                ended[name] = self._removed(name, "a new pod of the same name took its place")
            elif name in told and told[name].ended:
                ended[name] = told[name]
            else:
                continue
            del self.watched[name]
            self._let_go_at = self.clock()
        return ended

    def _removed(self, name: str, says: str) -> NodeTold:
        """Of a pod whose last word is not known: cleanly where another one of the job ended so."""
        clean = any(known.exit_code == 0 for known in self._told.values())
        see = self.reach.kubectl.shown("get events --field-selector", f"involvedObject.name={name}")
        return NodeTold(says, see, ended=True, exit_code=0 if clean else None)

    def _take_up(self, begun: Sequence[Pod], changes: Changes) -> None:
        try:
            changes.begun = self.reach.part(begun).commands(self.words, 0.0)
        except HangdoctorError as error:
            names = ", ".join(pod.name for pod in begun)
            changes.trouble = f"no agent can be started in {names}: {error}"
            return
        for pod in begun:
            self.watched[pod.name] = _identity(pod)
            self._told = {name: one for name, one in self._told.items() if name != pod.name}

    def _count(self, listed: Sequence[Pod]) -> None:
        ended = {name: one.exit_code == 0 for name, one in self._told.items() if one.ended}
        expected = {pod.name for pod in listed} - ended.keys()
        self._members = Members(frozenset(expected), ended)
        self._listed_last = list(listed) or self._listed_last
        self._coming = any(self._will_start(pod) for pod in listed if pod.name not in self.watched)

    def _will_start(self, pod: Pod) -> bool:
        """Whether the pod's container is to start, for the first time or again."""
        if pod.name not in self._members.ended:
            return True
        return pod.status_of(self.reach.container(pod)).state.waiting is not None


def _identity(pod: Pod) -> str:
    """A pod of the same name that was made later is another one."""
    return f"{pod.metadata.uid} {pod.metadata.creation_timestamp}"
