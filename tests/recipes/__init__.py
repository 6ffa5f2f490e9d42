"""RECIPES.md with its other side: what it prints is run with the jars of that, and decided by the router's rules."""
