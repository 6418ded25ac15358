"""What the process that does a job does, a module for each kind; they are named in `compiler.contract.job_kinds`."""

NOT_MEASURED = (
    "built by a worker that does not measure: tiles were chosen by the cost model and by earlier measurements"
)
