"""What tracing a call costs, beside other tracers."""
