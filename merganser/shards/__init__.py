"""The shard stream: every change of a table, shard by shard, from a position that the reader keeps itself.

    describe    which shards there are, and what came from what     meta/shards, meta/shard_store
    iterator    a position as a text                                shards/iterator
    records     what comes after a position                         shards/records
    stream      the verbs, as the handle has them                   shards/stream

Semantics: "Table Store Stream". Decision 0050.
"""
