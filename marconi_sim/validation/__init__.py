"""The simulator against a real model: is reuse exact, and does a prefill take the time that was predicted?"""
