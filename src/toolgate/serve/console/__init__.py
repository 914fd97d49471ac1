"""The console: pages for people in a browser, over the functions of /v1. `page` says how a page is declared."""
