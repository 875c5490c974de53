"""Sentence vectors: learned from pairs of which one follows from the other, judged by the STS Benchmark."""
