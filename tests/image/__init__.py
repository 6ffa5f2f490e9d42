"""The container image: built from the lock files and run as Kubernetes would run it, where a Docker engine answers."""
