"""What the events of a run amount to: summary, plain words."""
