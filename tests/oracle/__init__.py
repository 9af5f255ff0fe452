"""What the demo's output must be, computed apart from the product: no code in here imports `fencepost`."""
