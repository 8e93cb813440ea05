"""Evidence for end-task aware training: ACL-ARC, SciERC and ChemProt, fixed and learned weights against none."""
