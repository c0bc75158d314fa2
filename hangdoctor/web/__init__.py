"""The live page, its JSON API and the metrics: a web server in a process of its own beside the collector.

guard    who may speak: token, session, Host and Origin      board    one look a second, shared by all who ask
frames   what changed, as one small frame                    hub      the stream: one encoded frame for all readers
api      JSON                                                metrics  Prometheus
pages    the page's own files and the reports                server   socket and thread
"""
