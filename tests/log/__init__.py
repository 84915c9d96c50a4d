"""Tests of the log against a real broker of Kafka, which they fetch and start on the loopback interface."""
