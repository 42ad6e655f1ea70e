"""An update to real bytes and back."""
