"""Paimon's released Java as a witness: it and merganser share tables, and what both store is compared.

`make interop` runs it (`python -m tests.witness`). It is no part of `pytest`: it needs a JDK and downloads 100 MB once.
"""
