"""Figures beside their yardsticks, each a module that runs with `python -m`."""
