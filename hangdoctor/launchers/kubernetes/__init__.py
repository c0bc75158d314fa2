"""The pods of a job on Kubernetes, by the user's own kubectl: found, asked, and what is known of those
that cannot be asked.
"""
