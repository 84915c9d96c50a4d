"""The files that describe a table: schemas, snapshots, manifests."""
