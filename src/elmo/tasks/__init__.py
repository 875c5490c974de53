"""LAYERS ─▶ ANSWERS: the tasks of the paper (section 4). A task is data, a model and a metric; the rest is shared.

Letters: B examples, T tokens, K labels, H hidden units; 2D and L as in `elmo.model`.
"""
