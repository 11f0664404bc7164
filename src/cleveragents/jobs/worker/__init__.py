"""The worker: claims jobs, runs attempts, keeps leases, and takes over from dead workers.

`lease.JobRecovery` finds dead and silent owners and queues their jobs again. The next attempt of a plan's job
(`plans.run.PlanRun`) continues from the records of the plan.
"""
