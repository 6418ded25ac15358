"""Attention put together from parts: two products and the softmax between them.

lowering  the skeleton: tasks, what is packed once for each head, blocks of queries
online    blocks of keys whose softmax is taken online, around products of floats or of pairs
fp32      both products in fp32
pairs     both products by dot products of pairs of bf16
tiles     both products by tiles of bf16 (Intel AMX), with all keys in one block
integer   both products of bytes, to which the softmax is rounded
few       all of it for a few queries, over keys and values where they lie

sums      register tiles of sums in fp32, and what becomes of the sums
frame     what all parts write to: the text, the scratch, blocks of queries
cuts      how queries are cut into tasks and blocks, and the tiles that say so
"""
