"""Tests the container image: built from the lock files, and run like in Kubernetes, if a Docker engine answers."""
