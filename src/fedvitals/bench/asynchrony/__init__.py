"""Synchronous rounds, guided selection and asynchronous training, side by side on the same clients and the same clock.

`cases` makes the jobs and their devices, `racing` trains one and takes its times, `measuring` compares, `page` writes
what the documentation shows.
"""
