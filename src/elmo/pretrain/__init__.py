"""TEXT ─▶ CORPUS ─▶ WEIGHTS: a corpus folder from text, and the training of a biLM on it."""
