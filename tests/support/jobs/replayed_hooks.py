"""Call a callback's hooks as a real run did: replayed_hooks.py lightning|transformers FILE

Where the framework is not installed, a module with nothing but its base class stands in for it.
"""

import importlib.util
import inspect
import json
import pathlib
import pickle
import sys
import types

import hangdoctor.callbacks

NAMES = {"lightning": "Callback", "transformers": "TrainerCallback"}


def stand_in(which: str) -> None:
    for name in (which, f"{which}.pytorch"):
        sys.modules[name] = types.ModuleType(f"stand_in_for_{name}")
        setattr(sys.modules[name], NAMES[which], type("StandIn", (), {}))


def make(which: str) -> object:
    if which == "lightning":
        return hangdoctor.callbacks.lightning_callback()
    return hangdoctor.callbacks.trainer_callback()


def main(which: str, file: str) -> None:
    assert not {"torch", *NAMES} & set(sys.modules), "a framework was imported before it is used"
    if importlib.util.find_spec(which) is None:
        stand_in(which)
    made = make(which)
    assert type(pickle.loads(pickle.dumps(made))).__mro__[1:] == type(made).__mro__[1:]
    for name, given in json.loads(pathlib.Path(file).read_text()):
        hook = getattr(made, name, None)
        if hook is None:
            continue
        state = types.SimpleNamespace(**given)
        if which == "transformers":
            hook(None, state, state)
        else:
            hook(state, *[None] * (len(inspect.signature(hook).parameters) - 1))


main(*sys.argv[1:])
