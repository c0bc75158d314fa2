"""Write the page's `states.js` and `states.css` from the table of rank states: python
scripts/states_js.py
"""

from pathlib import Path

from hangdoctor.watch import rank_states

STATIC = Path(rank_states.__file__).parents[1] / "web" / "static"

if __name__ == "__main__":
    (STATIC / "states.js").write_text(rank_states.javascript())
    (STATIC / "states.css").write_text(rank_states.stylesheet())
