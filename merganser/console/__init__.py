"""The console: pages in a browser that show a warehouse, and keep its tables in shape where that is allowed.

`service` answers requests; `pages` has a module for each page, which makes values of a table for the template of the
same name in `templates`. Templates hold no logic beyond loops. `static` holds the one style sheet and the one script:
the pages are complete without it, and it refreshes parts of them, sorts, and knows keys.
"""
