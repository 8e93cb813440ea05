"""Search for better settings: a grid or Optuna's sampler, many trials under one budget, judged on dev alone."""
