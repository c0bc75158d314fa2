"""Write the page's `states.js` from the table of rank states: python scripts/states_js.py"""

from pathlib import Path

from hangdoctor.watch import rank_states

TARGET = Path(rank_states.__file__).parents[1] / "web" / "static" / "states.js"

if __name__ == "__main__":
    TARGET.write_text(rank_states.javascript())
