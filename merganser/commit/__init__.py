"""Changes -> snapshots: conflicts, manifests, the one commit path."""
