"""The embedded datastore (RocksDB), and the way to write to it and read from it over the network."""
