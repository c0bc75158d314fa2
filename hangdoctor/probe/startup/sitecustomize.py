"""Runs at the start of every Python below `hangdoctor run`: installs the probe, then the sitecustomize that we hide.

Python imports the first module of this name on its path. The probe is loaded from the package that this file lies in,
so that the job's own environment needs no hangdoctor.
"""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - no more imports than needed


def _install() -> None:
    package = os.path.dirname(os.path.dirname(_here))  # noqa: PTH120
    if "hangdoctor" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "hangdoctor",
            os.path.join(package, "__init__.py"),  # noqa: PTH118
            submodule_search_locations=[package],
        )
        if spec is None or spec.loader is None:
            return
        module = importlib.util.module_from_spec(spec)
        sys.modules["hangdoctor"] = module
        spec.loader.exec_module(module)
    from hangdoctor import probe

    probe.install()


def _chain() -> None:
    """Import the sitecustomize that would have been found without this folder; its errors are its own."""
    others = [p for p in sys.path if os.path.abspath(p or ".") != _here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("HANGDOCTOR_DISABLE", "") in ("", "0"):
    try:
        _install()
    except Exception:  # a Python too old, a package half copied: the job starts without the probe, and without noise
        sys.modules.pop("hangdoctor", None)
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != _here]  # noqa: PTH100
_chain()
