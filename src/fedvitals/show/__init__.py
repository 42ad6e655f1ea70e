"""What people see: figures, pages and the command line."""
