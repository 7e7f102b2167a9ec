"""The prediction server of `cavity serve`. It needs the extra "serve".

`requests` and `answers` are typed by the served model's own columns and classes, and `service` joins them: it receives, parses,
predicts in blocks and answers. `trial` describes the model for the page in `static`, `application` has the routes, and `server`
starts it all.
"""
