"""A local page and a JSON API over a folder of runs: `endtask serve`."""
