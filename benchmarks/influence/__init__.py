"""Evidence for selection by influence: ChemProt and SciERC, the best 34% of the corpus as candidates."""
