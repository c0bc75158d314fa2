"""A stand-in for a Kubernetes cluster on this machine: the user's real kubectl talks to a small API
server (`api_server`), whose pods are namespaces with real processes in them (`pods`).

It is no Kubernetes: no scheduler, no kubelet, no container runtime. What it answers has the form of
the real answers in tests/data/kubernetes.
"""
