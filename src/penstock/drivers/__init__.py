"""The only loops, threads and timers: they carry what the pure rooms decided."""
