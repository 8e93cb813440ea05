"""Which objectives run at a step and with which weight: one file per weighting."""
