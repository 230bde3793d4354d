"""Row 15, viewer: predictions and slides come in; a web page to look at them goes out."""
