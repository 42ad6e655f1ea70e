"""The measurements behind our claims: one file a question, each a ratio measured side by side."""
