"""Building blocks of task models."""
