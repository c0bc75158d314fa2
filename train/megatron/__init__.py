"""A Megatron user's command line, in this trainer's options."""
