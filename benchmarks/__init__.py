"""The figures of the README, one command each."""
