"""What tests share: tables over any storage, and a storage that fails on purpose."""
