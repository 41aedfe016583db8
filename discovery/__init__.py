"""Where hosts come from. Knows nothing of `elastic`."""
