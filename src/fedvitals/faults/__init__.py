"""What can go wrong, to inject: into the data, the training, the update, the link or the server."""
