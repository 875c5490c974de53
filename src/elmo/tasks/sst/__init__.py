"""Sentiment of sentences in five classes: a biattentive classification network (McCann et al. 2017)."""
