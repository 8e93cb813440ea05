"""The Python interface: `fit` trains on data in memory or in files, `load` returns a trained `Model`."""
