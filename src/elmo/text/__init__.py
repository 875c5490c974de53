"""TEXT ─▶ CHARACTER IDS: tokens, characters, vocabulary, batches. Knows nothing of PyTorch."""
