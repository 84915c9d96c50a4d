"""The command line: one function per command. Bodies import what they need, so that `--help` loads nothing else."""
