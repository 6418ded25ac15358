"""Networks in Node.js on one thread, as artifacts for browsers and by onnxruntime-web, in turns.

run       the command
race.mjs  what Node.js runs: both in one process
"""
