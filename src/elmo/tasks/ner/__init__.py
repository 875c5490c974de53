"""Named entities: a biLSTM-CRF over words and characters (Peters et al. 2017)."""
