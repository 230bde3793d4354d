"""Row 7, bags: other tools' feature files go in, bags come out, and back."""
