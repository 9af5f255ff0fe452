"""The output as a folder with a file for each interval: the smallest store of tables, for tests of what a kind of output is."""
