"""The diagnosis from operations: which ranks wait for which, and where the waits end.

Small pure passes over `OpsEvidence`: frontier -> wait-for graph -> components -> what each sink is.
"""

from .engine import diagnose_ops
from .evidence import OpsEvidence, OpsVerdict
from .first_disagreement import first_disagreement

__all__ = ["OpsEvidence", "OpsVerdict", "diagnose_ops", "first_disagreement"]
