"""Entailment between two sentences: ESIM (Chen et al. 2017)."""
