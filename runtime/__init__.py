"""What emitted prefill modules need at run time: loading, planning, running and verifying them."""
