"""Where storages lie, and what tasks touch of them.

buffers       storages placed in one arena, respecting what runs when
by_owner      placed so that lanes write memory that they wrote last; ownership: who wrote which lines
moves         what calls read of what others wrote, by bytes
remote_bytes  what parts of a call touch that lies with another lane
"""
