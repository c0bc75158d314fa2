"""The live page, its JSON API and the metrics, served by a process of its own beside the collector.

guard    who may speak: token, session, Host and Origin      board    one sample a second, shared by
all who ask frames   what changed, as one small frame                    hub      the stream: one
encoded frame for all readers api      JSON                                                metrics
Prometheus pages    the page's own files and the reports                server   the application and
its loop front    address and tokens, in the collector's process      beside   starts the page's
process and feeds it mirror   what the page knows of the collector                channel  frames
between the two strangers   time-outs and limits of connections without a token
"""
