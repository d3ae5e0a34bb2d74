"""What `tailrace run` builds: the objects of each role, from the configuration, in the order in which they depend."""
