"""What an assistant in an editor or a chat may ask, over the Model Context Protocol: small answers,
nothing that changes a job.
"""
