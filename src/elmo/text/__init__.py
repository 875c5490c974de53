"""TEXT ─▶ CHARACTER IDS: tokens, characters, vocabulary, batches. This package does not use PyTorch."""
