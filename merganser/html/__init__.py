"""HTML of rows and facts, for notebooks: no scripts, no files beside it, colours of the page that it stands in."""
