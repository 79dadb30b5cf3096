"""Trees of files as sources and targets share them: directories by descriptor, names as bytes, one stable
order.

Nothing here knows what a job, an attempt or a manifest is.
"""
