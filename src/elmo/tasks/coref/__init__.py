"""Coreference: which mentions of a document refer to the same entity. End-to-end span ranking (Lee et al. 2017)."""
