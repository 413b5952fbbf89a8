"""The tests; see `conftest.py` for profiles and missing judges."""
