"""What an application receives: a batch of updates, and the single update for those who prefer it.

`UpdateBatch` wraps the Arrow record batch untouched. Iterating it yields `Update` views that read the Arrow buffers
lazily: offsets become Python lists once per batch, bytes are sliced when a value is asked for. That keeps the
per-update callback at a few hundred nanoseconds, and costs nothing to an application that works on the Arrow batch.
"""
