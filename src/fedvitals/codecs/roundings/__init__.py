"""In how many bits a value travels."""
