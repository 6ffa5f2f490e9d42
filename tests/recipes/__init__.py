"""Runs the recipes of RECIPES.md with the jars of the other side, and decides the records by the router's rules."""
