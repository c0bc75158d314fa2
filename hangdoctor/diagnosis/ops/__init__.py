"""The diagnosis from operations: which ranks wait for which, and where the waits end.

Small pure passes over `OpsEvidence`: frontier -> wait-for graph -> components -> what each sink is.
"""

from __future__ import annotations

from .evidence import OpsEvidence, OpsVerdict


def diagnose_ops(evidence: OpsEvidence) -> OpsVerdict:
    """Which ranks block the job, from operations alone (`engine`).

    The forty modules of the engine are imported with the first question: logs and stacks ask none.
    """
    from . import engine

    return engine.diagnose_ops(evidence)


__all__ = ["OpsEvidence", "OpsVerdict", "diagnose_ops"]
