"""What tests hold the code against: the oracle, failing storage. Nothing imports it."""
