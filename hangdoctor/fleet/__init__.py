"""All jobs of a user or a cluster on one page, from the files that their collectors keep.

`jobs` (what each collector wrote last), `culprits` (nodes that are culprits again and again), `board`
(one sample of both for all who ask), `api`, `metrics` and `server`. It has no keys of any job and
asks no collector.
"""
