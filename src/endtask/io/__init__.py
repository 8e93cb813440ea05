"""Tables of any format, compression, atomic files, locks and the layout of a run."""
