"""CORPUS ─▶ WEIGHTS: prepare (text ─▶ corpus folder), corpus, streams, loss, and the training of a biLM on them."""
