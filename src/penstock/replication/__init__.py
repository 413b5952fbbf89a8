"""Partitions as a cluster sees them: leader, epoch, ISR, high watermark; appending, reading, waiting. Pure, synchronous."""
