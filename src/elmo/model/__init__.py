"""IDS ─▶ LAYERS ─▶ MIX: the biLM and the mix of its layers. This package knows no words and opens no files.

Shape letters used everywhere:

    B  sentences in a batch          C  characters of a word (50)       L  LSTM layers (2)
    T  tokens, boundaries included   F  filters of the char CNN (2048)  S  directions (2: forward, backward)
    N  words, or packed tokens       D  projection (512)                V  vocabulary
                                     H  LSTM cell (4096)
"""
