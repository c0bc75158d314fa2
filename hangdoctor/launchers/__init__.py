"""How a capture reaches the nodes of a job: srun, ssh, mpiexec; one file each."""
