"""The live page, its JSON API and the metrics, served by a process of its own beside the collector.

In the collector's process: `page_socket` (address and tokens), `page_supervisor` (starts the page's
process and feeds it). Between the two: `channel`, `collector_mirror` (what the page knows of the
collector).

In the page's process: `server` (the application and its loop), `access` (who may speak: token,
session, Host and Origin), `connection_limits` (of connections without a token), `snapshot` (one
sample a second, shared by all who ask), `standstill` (since when the job waits), `frames` and `hub`
(the stream: what changed, encoded once for all readers), `api` (JSON), `metrics` (Prometheus),
`pages` (the page's own files and the reports).
"""
