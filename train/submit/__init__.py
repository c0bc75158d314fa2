"""Scripts of jobs for Slurm and PBS, with hangdoctor inside; how to submit, ask for and end them."""
