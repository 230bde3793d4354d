"""Row 13, reports: predictions and metric tables come in; pictures, GeoJSON, tables, HTML go out."""
