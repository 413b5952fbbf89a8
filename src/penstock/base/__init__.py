"""What every room stands on: ids, ports for clock and files, errors, configuration keys."""
