"""One file per verb: parse, then call a plain function."""
