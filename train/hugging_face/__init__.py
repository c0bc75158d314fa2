"""Weights and configurations of Hugging Face's GPT-2 and Llama, to and from this trainer's."""
