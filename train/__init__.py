"""The bundled trainer: 3D-parallel GPT training that hangs on request."""
