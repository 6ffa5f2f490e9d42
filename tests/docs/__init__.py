"""Tests the documents against the program: commands, keys, targets of make, links, the paths of the API."""
