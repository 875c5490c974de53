"""LAYERS ─▶ ANSWERS: the paper's tasks (section 4). A task is data, a model and a metric; the road is the same for all.

Letters: B examples, T tokens, K labels, H hidden units; 2D and L as in `elmo.model`.
"""
