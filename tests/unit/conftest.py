"""Property-based tests try the same examples on every machine."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None, max_examples=60)
settings.load_profile("repeatable")
