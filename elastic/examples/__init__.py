"""Jobs that ship with the package."""
