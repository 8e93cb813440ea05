"""Studies as YAML files, and the pages that are made from their results."""
