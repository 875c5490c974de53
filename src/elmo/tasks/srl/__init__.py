"""Semantic roles: who did what to whom, by a deep highway LSTM (He et al. 2017)."""
