"""The columns of a sweep's file: what was run (and `param_NAME`, a parameter), what came of it, and whose it is."""

SETTINGS = (
    "experiment", "label", "trace", "synthetic", "policy", "rules", "model", "accounting", "attention_layers",
    "ssm_layers", "mlp_layers", "model_dimension", "state_dimension", "kv_bytes_per_token", "state_bytes",
    "tokens_per_state", "capacity", "capacity_bytes", "sessions", "sessions_per_second", "response_time", "seed",
)  # fmt: skip
METRICS = (
    "requests", "input_tokens", "reused_tokens", "token_hit_rate", "request_hit_rate", "flops_total", "flops_saved",
    "peak_bytes", "evictions", "bypassed", "states", "kv_tokens", "missed_cold", "missed_kv_evicted",
    "missed_unfinished", "missed_state_evicted", "missed_no_checkpoint", "missed_grid", "missed_last_token",
    "missed_not_admitted",
)  # fmt: skip
IDENTITY = ("trace_sha256", "policy_sha256", "version", "configuration", "run")
TTFT = "ttft"  # made from a file of requests and a latency model
