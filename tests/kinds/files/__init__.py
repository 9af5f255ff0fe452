"""The output as a folder with a file for each interval: a table in another store than PostgreSQL, the smallest there is.

As a table it has revisions, leases, an owner and missing batches (`fencepost/outputs/table`). Settings, store, doctor's checks
and reader are its own. A batch runs through each step: plan freezes the folder's name, write and validate use the staging topic,
advance replaces the interval's file, and skip gives a publication up. `read_validated`, `status` and the doctor ask it too. It
commits no offsets and checks no columns, so `offsets` and `columns` are None.
"""
