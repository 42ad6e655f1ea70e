"""What the engine is measured against: other ways to run the same federated training, each as its users would."""
