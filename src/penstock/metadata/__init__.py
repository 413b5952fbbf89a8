"""The cluster's image, and the store port behind it: a tree shaped like ZooKeeper's."""
