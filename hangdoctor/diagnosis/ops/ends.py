"""The end of a job: ranks that leave while others stay."""

from __future__ import annotations

from ...model import Cause, Evidence
from .alone import ADVICE, Sink
from .blame import blame
from .order import cause_of_divergence
from .scene import Scene
from .waits import Instance
from .words import capital, instance_text, nodes_of, place_text, ranks_text, verb, waiting_text, where_of


def cause_of_teardown(scene: Scene, instance: Instance) -> Cause:
    """Ranks that stand in destroy_process_group when nobody is missing there any more."""
    ranks = sorted(instance.waiters)
    who, what = capital(ranks_text(ranks)), instance_text(scene, instance)
    does, place = verb(ranks, "does", "do"), place_text(scene, ranks)
    summary = f"{who} {does} not come out of {what}; the others have left{place}."
    cause = Cause("end_stall", ranks, nodes_of(scene, ranks), 0.85, summary, where_of(scene, instance, None, ranks))
    cause.evidence = [Evidence("ops", ranks, f"in {instance_text(scene, instance)}, not finished")]
    cause.advice = ADVICE["end_stall"]
    return cause


def cause_of_leaving(scene: Scene, left: list[Sink]) -> Cause:
    """Ranks that ended in good order while others wait for them: who of the two left the program?"""
    gone = sorted(s.rank for s in left)
    instance = min((i for s in left for i in s.instances), key=lambda i: len(i.present))
    found = blame(scene, sorted({*gone[:64], *instance.waiters[:64]}))
    if found:
        return cause_of_divergence(scene, found, [])
    everyone = [r for r in scene.ops if scene.finished(r)]
    waiting = [r for r in scene.ops if scene.frontier(r).blocking]
    what = instance_text(scene, instance)
    if len(everyone) <= len(waiting):
        who, rest = capital(ranks_text(gone)), waiting_text(scene, instance)
        summary = f"{who} left the training in good order and never entered {what}; {rest}."
        cause = Cause("not_entered", gone, nodes_of(scene, gone), 0.85, summary, where_of(scene, instance, None, gone))
    else:
        still = f"{capital(ranks_text(waiting))} {verb(waiting, 'is', 'are')} still in"
        summary = f"{still} {what} while the others have left the training{place_text(scene, waiting)}."
        cause = Cause("end_stall", sorted(waiting), nodes_of(scene, waiting), 0.8, summary)
        cause.where = where_of(scene, instance, None, waiting)
    cause.evidence = [
        Evidence("ops", gone, "finished in good order"),
        Evidence("ops", instance.waiters[:64], f"in {instance_text(scene, instance)}"),
    ]
    cause.advice = ADVICE["end_stall"]
    return cause
