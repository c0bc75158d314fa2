"""The report as one HTML page: no network, no framework, opens from disk.

`page.as_bytes` joins the parts; each part is a module that turns the diagnosis and the capture into
plain data, which the templates (autoescaped) and the page's own script show. The page may be mailed
around, so that it trusts nothing: every name comes from a foreign job.
"""

from .page import as_bytes

__all__ = ["as_bytes"]
