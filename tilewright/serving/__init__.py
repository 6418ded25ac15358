"""`tilewright serve`: artifacts behind HTTP, and nothing of the compile service: no database, no broker.

tensors  bodies of the Open Inference Protocol (KServe v2), and arrays
served   an artifact, its replicas, and the runs that wait for one
openai   texts: embeddings and completions, as OpenAI's API has them
app      routes, keys, limits, counters
"""
