"""What every interface does alike: accounts of plans and jobs, without a terminal and without HTTP."""
