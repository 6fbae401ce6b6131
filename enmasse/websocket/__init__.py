"""WebSockets of gateways: aiohttp's frames as streams of bytes, with bounds before a login. Imported with the first
listener that needs it: aiohttp costs a fifth of a second, and 12 MiB.

    masking             masks of frames, which aiohttp does not check
    websocket_stream    the stream
"""
