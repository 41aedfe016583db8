"""`elastic chaos`: break a job on purpose, by a plan, and judge how it lived through it."""
