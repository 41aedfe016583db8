"""Hosts of their own on one machine, and a network between them that can be broken."""
