"""Which retrieved passages are kept: selectors chosen by name, exact budgets."""
