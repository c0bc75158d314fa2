// Written by `scripts/states_js.py`; do not edit.
export const STATES = ["unseen", "moving", "working", "waiting", "outside", "still", "silent", "gone", "finished", "stopped", "blocked"];
export const GLYPHS = ["", "›", "~", "", "!", "–", "?", "×", "✓", "‖", "■"];
export const SAYS = {"unseen": "not seen yet", "moving": "moving", "working": "working outside of operations", "waiting": "waiting in an operation", "outside": "in no recorded operation", "still": "no progress (no black box)", "silent": "its node does not answer", "gone": "process has ended or was killed", "finished": "finished", "stopped": "its process is stopped", "blocked": "blocked in uninterruptible I/O"};
// Codes, the state first that is shown for several ranks in one square.
export const WORST = [9, 7, 6, 10, 4, 5, 3, 2, 1, 8, 0];
// States that may block the others.
export const SUSPECT = ["stopped", "gone", "silent", "blocked", "outside", "still"];
// The sign of a rank that makes the others wait.
export const CAUSE = "◆";
