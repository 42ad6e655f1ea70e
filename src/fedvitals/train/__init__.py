"""The engine: a job in, a trained model and its records out."""
