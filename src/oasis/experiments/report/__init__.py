"""Reports: tables, figures and one page."""
