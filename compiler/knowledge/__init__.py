"""What has been measured: records looked up, and those that come with the compiler.

known    what records say of tiles, and which searches were made
shipped  records that come with the compiler, and those of other hardware as starting points

May know: `ir`.
"""
