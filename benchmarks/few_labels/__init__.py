"""Few labels for plain text classification: the preset `few-labels` against SetFit and plainer ways."""
