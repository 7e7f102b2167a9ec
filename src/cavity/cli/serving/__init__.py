"""The prediction server of `cavity serve`. It needs the extra "serve".

`requests` and `answers` are typed by the served model's own columns and classes, `json_rows` parses bodies, `batching` shares
blocks of rows among requests, `service` joins them. `deadlines` ends slow connections, `trial` describes the model for the page in
`static`, `application` has the routes, and `server` starts it all.
"""
