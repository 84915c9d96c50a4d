"""Progress of long work, and sizes as a person reads them."""
