"""Run a program with the probe in it, and print what it has marked: marked.py PROGRAM [WORDS...]"""

import json
import runpy
import sys

import hangdoctor.probe as probe

probe.install()
probe.phase("")  # the box is there from here on
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")

from hangdoctor.probe.process_probe import probe as inside  # noqa: E402
from hangdoctor.readers.blackbox import read_box  # noqa: E402

marks = read_box(inside._kept.box.path).ops.marks[1:]
print("MARKS", json.dumps([m.text if m.kind == "phase" else [m.kind, m.number] for m in marks]))
