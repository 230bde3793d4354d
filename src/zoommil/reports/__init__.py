"""Row 13, reports: predictions and metrics come in; pictures, GeoJSON, tables, HTML go out."""
