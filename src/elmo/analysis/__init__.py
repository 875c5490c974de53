"""THE PAPER'S TABLES AND FIGURES (section 5): one file for each, all of the same form; see `analysis.py`."""
