"""What a row is: types, schemas, filters. No bytes, no I/O."""
