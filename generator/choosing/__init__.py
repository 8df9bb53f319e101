"""The choice of lengths, chunk and waves for a workload, by modelled time."""
