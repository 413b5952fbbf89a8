"""What the Makefile and the tests need around the project: Java, the judges, checks of the tree."""
