"""The collector: `state` decides, `server` moves bytes, `keys` says who may speak."""
