"""The block cache of `vllm+`."""
