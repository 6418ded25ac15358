"""`tilewright serve`: artifacts behind HTTP, and nothing of the compile service: no database, no broker.

tensors  bodies of the Open Inference Protocol (KServe v2), and arrays
served   an artifact, its replicas, and the runs that wait for one
openai   texts as OpenAI's API has them, and their embeddings
chat     messages to a prompt
completions  what decoders write
app      routes, keys, limits, counters
"""
