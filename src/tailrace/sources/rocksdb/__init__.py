"""RocksDB's write-ahead log as a source of updates."""

from tailrace.sources.rocksdb.decoding import Decoder
from tailrace.sources.rocksdb.files import identity
from tailrace.sources.rocksdb.source import RocksDBSource

__all__ = ["Decoder", "RocksDBSource", "identity"]
