"""How the figures of docs/ACCURACY.md are measured, in words."""

COMPARED = """\
Every tool is given the same folders (`accuracy.cases`), once each (`accuracy.tools`), and is scored by the ranks
that it names. Where its output leaves open which ranks it means, it is right if any reading of it is. A kind of fault and a
confidence count only for a tool that states them. A tool has no row for evidence that it does not read.

Evidence:

- dump files: Flight Recorder dumps of a simulated NCCL job, one pickle a rank. Active-only dumps: only what has not
  ended. 10% silent: a tenth of the ranks left no dump. Any layout: order and sizes of the parallel dimensions are drawn
- dumps of gloo: Flight Recorder dumps of one moment, as JSON, of a real job of eight gloo ranks, hung by a drawn fault;
  nothing in them says how many ranks there are
- logs alone: what a real job of four ranks under torchrun printed
- stacks: a bundle of `hangdoctor dump` without a verdict, of a job that was not prepared. Framework 1F1B pipeline: the
  same real job; others: hangs of other people's frameworks, four ranks (`tests/frameworks/jobs`)
- black box: the same of a job under `hangdoctor run`

Tools:

"""

TEXT = """\
- Exact: the status is hang, and the ranks of all causes together are the culprits, no more and no fewer. For a job that
  does not hang: the status is another one, and no rank but the slow one is named. A victim: a rank is named that is
  neither a culprit nor in a set that this evidence does not separate from the culprits (a silent member of the group, a
  wrong root where no root is recorded, with stacks alone the two ranks of which one skipped a call or the other made
  one more).
- Real: eight gloo ranks, TP2 x PP2 x DP2 with a 1F1B pipeline (`job.py`); a seed draws rank, step and place of each
  fault (`coordinates.py`, `faults.py`). Each job hangs once and is judged in three modes from the same hang: with
  stacks and /proc only, with the black box, and from Flight Recorder dumps only. Jobs without a probe show that stacks
  are the same without it; `nothing prepared` is such a job as it is, with torch's own record of its
  collectives, read from memory. Ranks are forked from one process that has imported torch. After an error of gloo a rank
  waits for its launcher, as with elastic launchers.
- gloo aborts the process that is sent more than it expects, so a wrong shape or dtype kills its rank: `dead` is right.
- gloo's recorder has no sends and receives, no roots and no reduce operations, and nothing before the first group. Real
  dumps alone do not separate a rank that waits for its neighbour stage from one that never made the call, nor a long
  evaluation from a hang in it (`real_twins.py` hangs such pairs and compares the records). There, naming both stages
  counts as exact, and naming none where nothing is recorded. With a wrong root, naming the whole group counts as right.
  NCCL's recorder has sends and receives; see the simulated part.
- Simulated: every rank's program runs with NCCL's semantics, run-ahead and short rings (`simulate.py`); a fault that
  does not hang the job is put elsewhere. `two captures` is judged in memory, `dump files` from pickles of one moment
  that are read back, without other knowledge.
- Logs alone: four gloo ranks under torchrun, with and without --tee and --log-dir, fail or hang in a chosen way; only
  what they printed is read (`logs.py`). A call that one rank skips, and a good end, show no rank: naming none is right.
- Stacks do not show operation numbers. If one of two ranks has passed an operation in which the other waits, either it
  skipped a call or the other made one too many: both are named. If two ranks are in two different calls, or have two
  roots, nothing shows which is wrong.
- Time and memory of the largest cases are those of the diagnosis alone: seconds of processor time, the fastest of
  three. For the files of 1,024 ranks they are those of a whole process each, by the clock.
- Undecidable: a verdict that names one silent rank, not the culprit, where another simulated job in which that rank is
  the culprit leaves the same evidence to the byte. It is neither exact nor a victim, and has a column of its own.
"""
