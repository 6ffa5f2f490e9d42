"""A model of exactly-once in TLA+, and the model checker TLC that plays every order of its steps."""
