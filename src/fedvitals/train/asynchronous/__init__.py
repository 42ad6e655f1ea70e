"""The engine without rounds: clients come and go, and the server takes a step for every few updates.

A step is recorded as a round. `versions` hands out the model, a fleet (`virtual` or `real`) brings what comes of it,
`steps` fills the buffer and moves the model, `recording` writes down who was in it.
"""
