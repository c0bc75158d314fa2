"""Runs at the start of every Python below `hangdoctor run`: installs the probe, then makes way for
what it hides.

Python imports the first module of this name on its path. The probe is loaded from the package that
this file lies in, so that the job's own environment needs no hangdoctor. Any Python may come by,
from 2.7 on, so that nothing in this file is newer; the probe itself is for CPython 3.10 and later.
Whatever happens here, the job starts, and without noise.
"""

import os
import sys

_here = os.path.dirname(__file__)  # noqa: PTH120 - no more imports than needed; as it stands on the path
_before = set(sys.modules)

if (
    sys.version_info >= (3, 10)
    and sys.implementation.name == "cpython"
    and os.environ.get("HANGDOCTOR_DISABLE", "") in ("", "0")
):
    try:
        if "hangdoctor" not in sys.modules:
            import importlib.util

            _package = os.path.dirname(os.path.dirname(_here))  # noqa: PTH120
            _file = os.path.join(_package, "__init__.py")  # noqa: PTH118
            _spec = importlib.util.spec_from_file_location(
                "hangdoctor", _file, submodule_search_locations=[_package]
            )
            if _spec is None or _spec.loader is None:
                raise ImportError(_file)
            _module = importlib.util.module_from_spec(_spec)
            sys.modules["hangdoctor"] = _module
            _spec.loader.exec_module(_module)
        from hangdoctor import probe

        probe.install()
    except (
        Exception
    ):  # a package half copied, a Python that no one has tried: nothing of ours stays
        for _name in set(sys.modules) - _before:
            if _name.partition(".")[0] == "hangdoctor":
                del sys.modules[_name]
        sys.meta_path[:] = [
            f for f in sys.meta_path if not type(f).__module__.startswith("hangdoctor.")
        ]

_others = [p for p in sys.path if p != _here]
_found = len(_others) < len(sys.path)
sys.path[:] = _others
sys.path_importer_cache.pop(_here, None)
if _found:
    # In our place comes the next one of this name, by the interpreter's own ways: where there is none, it says so to
    # whoever has asked, and an error in it is shown as without us.
    del sys.modules[__name__]
    import sitecustomize  # noqa: F401
