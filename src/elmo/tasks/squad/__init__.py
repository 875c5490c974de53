"""Questions about paragraphs of text (SQuAD 1.1): bi-attention and self-attention (Clark & Gardner 2017)."""
