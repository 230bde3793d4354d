"""Row 16, the command line: arguments in, one call of the function of the same name, a print."""
