"""The project as users get it: the wheel that is built, what is in it, and the unit tests on what it installs."""
