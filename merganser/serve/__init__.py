"""Servers over HTTP: the verbs of the shard stream (docs/serve-stream.md), and the REST catalog (docs/catalogs.md).

::

    operations      what can be asked, as data: paths, parameters and their limits
    openapi         the same as an OpenAPI document, and as a page for people
    answers         errors, records and shards as bytes
    watch           what is known of a table, looked up for many requests at once
    service         the service of shard streams
    catalog_json    schemas, changes, snapshots and errors as the REST catalog says them
    catalog_service the service of the REST catalog
    http            a request in, an answer out; who may ask, and how many at once
    server          sockets, signals, and the end

Modules import Starlette and uvicorn, which the extra `console` brings. Nothing else in merganser imports them.
"""
