"""Text as tokens: Megatron's indexed files, blends, splits, sample order and the loader."""
