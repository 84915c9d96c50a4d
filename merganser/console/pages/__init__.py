"""The pages: each module makes what its template shows, from a catalog or a table, in a thread."""
