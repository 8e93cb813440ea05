"""Load on `endtask serve`: many clients, wrong requests, slow clients, and random requests by its OpenAPI document."""
